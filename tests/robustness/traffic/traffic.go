package traffic

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"robustness/history"
	"robustness/servers"
)

// Lock is one that the clients of a round use.
type Lock struct {
	Key    string
	Blocks float64 // how often a request for it waits
}

// Traffic is the clients of one round.
type Traffic struct {
	Group       *servers.Group
	Now         func() int64
	Locks       []Lock
	recorder    history.Recorder
	connections *atomic.Int64
	stopped     atomic.Bool
	hung        atomic.Int64 // clients with a number below it do nothing
	refreshed   atomic.Int64
	running     sync.WaitGroup
	mutex       sync.Mutex
	traces      map[int]*servers.Trace // by connection
	clients     []*client
}

// connections have numbers that are unique in a run.
var connections atomic.Int64

// Start starts the clients of a round on locks that nobody used before.
func Start(group *servers.Group, now func() int64, seed uint64, round, clients int) *Traffic {
	random := rand.New(rand.NewPCG(seed, uint64(round)))
	t := &Traffic{Group: group, Now: now, connections: &connections, traces: map[int]*servers.Trace{}}
	group.Links.Forget()
	tag := fmt.Sprintf("r%d", round)
	if group.Topology == "cluster" {
		// One slot: several locks can be taken together, and a fault of one node
		// is a fault for all of them.
		tag = "{" + tag + "}"
	}
	for i, blocks := range []float64{0, 0.1, 0.3, 0.5, 0.6, 0.8, 0.9, 1} {
		t.Locks = append(t.Locks, Lock{fmt.Sprintf("%s%c", tag, 'a'+i), blocks})
	}
	for i := range clients {
		c := &client{
			Traffic: t, number: i, owner: fmt.Sprintf("%d.%d", round, i),
			random: rand.New(rand.NewPCG(seed, uint64(round)<<32+uint64(i)+1)),
			links:  map[place]*link{}, holds: map[string][]belief{},
		}
		// Each uses three locks; the first ones of the list have few users.
		for len(c.locks) < 3 {
			n := min(random.IntN(len(t.Locks)), random.IntN(len(t.Locks))+3)
			c.locks = append(c.locks, t.Locks[n%len(t.Locks)])
		}
		t.clients = append(t.clients, c)
		t.running.Go(c.run)
	}
	return t
}

// Stop lets each client finish its call, and returns what they wrote down.
func (t *Traffic) Stop() []history.Op {
	t.stopped.Store(true)
	t.hung.Store(0)
	t.running.Wait()
	for _, c := range t.clients {
		c.notice()
	}
	for _, c := range t.clients {
		for _, l := range c.links {
			l.conn.Close()
		}
	}
	ops := t.recorder.Take()
	for i := range ops {
		op := &ops[i]
		if trace := t.traces[op.Conn]; trace != nil && (op.Command == "close" || op.Outcome == history.Lost) {
			op.Closed = trace.Closed.Load()
		}
	}
	return ops
}

func (t *Traffic) note(connection int, trace *servers.Trace) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.traces[connection] = trace
}

// Hang makes so many clients stop where they are, with what they hold.
func (t *Traffic) Hang(clients int) { t.hung.Store(int64(clients)) }

// Record notes what the harness itself did to the locks.
func (t *Traffic) Record(op history.Op) { t.record(op) }

func (t *Traffic) record(op history.Op) { t.recorder.Add(op) }

// refresh asks who the primary is, at most every 100 ms for all clients together.
func (t *Traffic) refresh() {
	now, last := t.Now(), t.refreshed.Load()
	if now-last > 100_000 && t.refreshed.CompareAndSwap(last, now) {
		t.Group.Refresh()
	}
}

func (c *client) run() {
	for !c.stopped.Load() {
		if int64(c.number) < c.hung.Load() {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		c.next()
		c.pause(25)
		if c.chance(0.1) {
			c.notice()
		}
	}
}
