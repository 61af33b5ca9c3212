package servers

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Links are the TCP proxies in front of all nodes. A link is known by the address
// that it comes from and the node that it goes to, so each can be cut alone.
type Links struct {
	mutex   sync.Mutex
	changed *sync.Cond
	cut     map[[2]string]bool
	pairs   map[*pair]bool
	names   map[string]string // by IP
	traces  map[string]*Trace // by the address of the one that connects
	now     func() int64
}

// Trace is what a proxy knows of a connection, in µs of the histories' clock: when
// it had passed on all that was sent so far, and when it closed its end at the server.
type Trace struct {
	Passed, Closed atomic.Int64
}

// Trace finds that of the connection with this local address.
func (l *Links) Trace(local string) *Trace {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	t := l.traces[local]
	if t == nil {
		t = new(Trace)
		l.traces[local] = t
	}
	return t
}

// Forget drops all traces; addresses are used again.
func (l *Links) Forget() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	clear(l.traces)
}

// pair is one connection through a proxy.
type pair struct {
	from, to     string
	outer, inner net.Conn
	bus          bool
	trace        *Trace
}

// Clients is the name of everybody who is no server.
const Clients = "clients"

func newLinks(now func() int64) *Links {
	l := &Links{cut: map[[2]string]bool{}, pairs: map[*pair]bool{}, names: map[string]string{}, traces: map[string]*Trace{}, now: now}
	l.changed = sync.NewCond(&l.mutex)
	return l
}

// serve accepts connections to a node, for good.
func (l *Links) serve(listener net.Listener, to, target string, bus bool) {
	for {
		outer, err := listener.Accept()
		if err != nil {
			return
		}
		go l.carry(outer, to, target, bus)
	}
}

func (l *Links) carry(outer net.Conn, to, target string, bus bool) {
	host, _, _ := net.SplitHostPort(outer.RemoteAddr().String())
	from := Clients
	if name, ok := l.names[host]; ok {
		from = name
	}
	trace := new(Trace)
	if from == Clients {
		trace = l.Trace(outer.RemoteAddr().String())
	}
	l.await(from, to)
	inner, err := net.Dial("tcp", target)
	if err != nil {
		outer.Close()
		trace.Closed.Store(l.now())
		return
	}
	p := &pair{from: from, to: to, outer: outer, inner: inner, bus: bus, trace: trace}
	l.mutex.Lock()
	l.pairs[p] = true
	l.mutex.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, inner, outer, from, to) })
	both.Go(func() { l.pump(p, outer, inner, from, to) })
	both.Wait()
	l.mutex.Lock()
	delete(l.pairs, p)
	l.mutex.Unlock()
}

// pump carries bytes one way. On a cut link they wait, as packets do that are sent
// again and again; the end of a connection waits too.
func (l *Links) pump(p *pair, dst, src net.Conn, from, to string) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := src.Read(buffer)
		l.await(from, to)
		if n > 0 {
			if _, e := dst.Write(buffer[:n]); e != nil {
				break
			}
			if dst == p.inner {
				p.trace.Passed.Store(l.now())
			}
		}
		if err != nil {
			break
		}
	}
	p.outer.Close()
	p.inner.Close()
	p.trace.Closed.Store(l.now())
}

func (l *Links) await(from, to string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for l.cut[[2]string{from, to}] {
		l.changed.Wait()
	}
}

// Cut holds up all that is sent between the two, both ways, whoever connected.
func (l *Links) Cut(a, b string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cut[[2]string{a, b}], l.cut[[2]string{b, a}] = true, true
}

// Heal ends all cuts.
func (l *Links) Heal() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	clear(l.cut)
	l.changed.Broadcast()
}

// Reset breaks the clients' connections to a node for which pick says so, with
// a TCP reset at both ends. It returns their number.
func (l *Links) Reset(to string, pick func() bool) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	n := 0
	for p := range l.pairs {
		if p.from != Clients || p.bus || !strings.EqualFold(p.to, to) || !pick() {
			continue
		}
		for _, c := range []net.Conn{p.outer, p.inner} {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetLinger(0)
			}
			c.Close()
		}
		p.trace.Closed.Store(l.now())
		n++
	}
	return n
}
