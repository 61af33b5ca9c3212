package rwlock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	grace  = 800 * time.Millisecond // how long an answer may take beyond the wait
	pause  = 100 * time.Millisecond // between two requests to a server that is not ready
	spares = 16                     // idle connections to keep for each server
)

// connections are made like those of the client, but without its timeouts and retries.
// A request that waits blocks its connection, and a session lives as long as its connection.
type connections struct {
	client  redis.UniversalClient
	name    string
	reached *atomic.Bool // a server accepted a connection once
	pool    *pool
}

type pool struct {
	sync.Mutex
	closed bool
	open   map[*conn]bool
	idle   map[string][]*conn // by address
}

func newConnections(client redis.UniversalClient, name string) connections {
	return connections{client, name, new(atomic.Bool), &pool{open: map[*conn]bool{}, idle: map[string][]*conn{}}}
}

// ask sends a request, with BLOCK if it may wait, until a server takes it or the time is up.
// It returns the reply and its connection, which is the caller's then. With the connection
// of a session it uses no other one.
func (s connections) ask(ctx context.Context, own *conn, lock string, wait time.Duration, args ...any) (any, *conn, error) {
	end := time.Now().Add(wait)
	late, cancel := context.WithDeadline(ctx, end.Add(grace))
	defer cancel()
	moved := "" // where a redirection leads to
	for {
		words := args
		if wait == Forever {
			words = append(args[:len(args):len(args)], "BLOCK", 0)
		} else if wait > 0 {
			left := max(1, (time.Until(end) + time.Millisecond - 1).Milliseconds())
			words = append(args[:len(args):len(args)], "BLOCK", left)
		}
		c, err := own, error(nil)
		if c == nil {
			c, err = s.connection(late, lock, moved)
		}
		var reply any
		if err == nil {
			reply, err = c.send(late, words)
			if err == nil {
				return reply, c, nil
			}
			if c != own || !answered(err) {
				c.Close() // the server forgets the waiter
			}
		}
		cluster, isCluster := s.client.(*redis.ClusterClient)
		if isCluster && passing(err) {
			cluster.ReloadState(ctx)
		}
		before := moved
		if moved, _ = redis.IsMovedError(err); moved != "" && before == "" && own == nil {
			continue
		}
		err = named(err)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !passing(err):
			return nil, nil, err
		case own != nil && !answered(err):
			return nil, nil, &Error{Kind: ErrNotHeld, text: "the connection of a hold on " + lock + " was closed", cause: err}
		case late.Err() != nil || s.reached.Load() && wait > 0 && !time.Now().Before(end):
			return nil, nil, &Error{Kind: ErrTimedOut, Held: Unknown, text: "no server took the request for " + lock, cause: err}
		case wait == 0 || !s.reached.Load():
			return nil, nil, err // a server that was never reached may have another address
		}
		sleep(ctx, min(pause, time.Until(end)))
	}
}

// connection is one that nobody else uses, to the server of the lock.
func (s connections) connection(ctx context.Context, lock, moved string) (*conn, error) {
	node, _ := s.client.(*redis.Client)
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		var err error
		if node, err = cluster.MasterForKey(ctx, lock); err != nil {
			return nil, err
		}
	}
	options := *node.Options()
	if moved != "" {
		options.Addr = moved
	}
	if c, err := s.spare(options.Addr); c != nil || err != nil {
		return c, err
	}
	socket, err := options.Dialer(ctx, options.Network, options.Addr)
	if err != nil {
		return nil, err
	}
	s.reached.Store(true)
	c := newConn(socket, options, s.name)

	s.pool.Lock()
	defer s.pool.Unlock()
	if s.pool.closed {
		c.Close()
	}
	s.pool.open[c] = true
	context.AfterFunc(c.ctx, func() {
		s.pool.Lock()
		defer s.pool.Unlock()
		delete(s.pool.open, c)
	})
	return c, nil
}

// spare is a connection that was kept, if there is one.
func (s connections) spare(addr string) (*conn, error) {
	s.pool.Lock()
	defer s.pool.Unlock()
	if s.pool.closed {
		return nil, usage("these Locks are closed")
	}
	idle := s.pool.idle[addr]
	for len(idle) > 0 {
		c := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		s.pool.idle[addr] = idle
		if c.ctx.Err() == nil {
			return c, nil
		}
	}
	return nil, nil
}

func (s connections) keep(c *conn) {
	s.pool.Lock()
	defer s.pool.Unlock()
	if idle := s.pool.idle[c.addr]; !s.pool.closed && len(idle) < spares {
		s.pool.idle[c.addr] = append(idle, c)
	} else {
		c.Close()
	}
}

func (s connections) close() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.pool.closed = true
	for c := range s.pool.open {
		c.Close()
	}
}

// conn is a client with a single connection, which is read all the time: so its end is
// noticed at once.
type conn struct {
	client *redis.Client
	addr   string
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
}

func newConn(socket net.Conn, options redis.Options, name string) *conn {
	tcp := socket
	if secure, ok := socket.(*tls.Conn); ok {
		tcp = secure.NetConn()
	}
	if tcp, ok := tcp.(*net.TCPConn); ok { // a server that is gone is noticed within half a minute
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
	from, to := io.Pipe()
	var once atomic.Bool
	options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if once.Swap(true) {
			return nil, errors.New("the connection was closed") // a session never moves to a second one
		}
		return &watched{socket, from}, nil
	}
	options.DialerRetries = 1
	options.ClientName = name
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns = 1, 0, 0
	options.ReadTimeout = -1     // an answer may take as long as the wait
	options.MaxRetries = -1      // ask does it, with the time that is left
	options.ConnMaxIdleTime = -1 // a session may be idle for long
	options.ConnMaxLifetime = -1
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := &conn{client: redis.NewClient(&options), addr: options.Addr}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	context.AfterFunc(c.ctx, func() {
		c.client.Close()
		socket.Close()
	})
	go func() {
		_, err := io.Copy(to, socket)
		to.CloseWithError(cmp.Or(err, io.EOF))
		c.Close()
	}()
	return c
}

func (c *conn) Close() { c.cancel() }

// send returns when the context ends, even if the client does not.
func (c *conn) send(ctx context.Context, args []any) (any, error) {
	done := make(chan *redis.Cmd, 1)
	go func() { done <- c.client.Do(context.WithoutCancel(ctx), args...) }()
	select {
	case answer := <-done:
		return answer.Result()
	case <-ctx.Done():
		c.Close()
		return nil, ctx.Err()
	}
}

// watched reads what the goroutine above has read.
type watched struct {
	net.Conn
	from *io.PipeReader
}

func (w *watched) Read(p []byte) (int, error)      { return w.from.Read(p) }
func (w *watched) SetReadDeadline(time.Time) error { return nil }
func (w *watched) SetDeadline(t time.Time) error   { return w.SetWriteDeadline(t) }
func (w *watched) Close() error                    { w.from.Close(); return w.Conn.Close() }

// sleep waits, but not longer than the context.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
