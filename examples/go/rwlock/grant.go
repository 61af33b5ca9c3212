package rwlock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// A grant is what the server granted to one request. All Holds that enter its locks share it.
type grant struct {
	locks   *Locks
	owner   *Owner
	names   []string // all its locks, those for writing first
	write   []string // its locks for writing
	tokens  map[string]int64
	lease   time.Duration
	session bool
	conn    *conn // of a session
	depth   int   // how many Holds share it
	pending bool  // it is not granted yet

	ctx    context.Context // ends with the grant
	cancel context.CancelCauseFunc
	end    atomic.Pointer[time.Time] // when the lease ends, if nobody renews it
}

func newGrant(l *Locks, owner *Owner, o Options) *grant {
	g := &grant{locks: l, owner: owner, tokens: map[string]int64{}, lease: o.Lease, session: !o.PlainLease, depth: 1, pending: true}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

func (g *grant) String() string { return strings.Join(g.names, ", ") }
func (g *grant) millis() int64  { return g.lease.Milliseconds() }
func (g *grant) lost() bool     { return errors.Is(context.Cause(g.ctx), ErrNotHeld) }

func (g *grant) lose(why string) {
	g.cancel(&Error{Kind: ErrNotHeld, text: g.String() + ": " + why})
}

func (g *grant) renewed(at time.Time) {
	at = at.Add(g.lease)
	g.end.Store(&at)
}

func (g *grant) acquire(ctx context.Context, wait time.Duration, fence bool) error {
	var args []any
	switch {
	case len(g.names) > 1:
		args = []any{"RWLOCK.MLOCK", g.owner.ID, g.millis()}
		if read := g.names[len(g.write):]; len(read) > 0 {
			args = append(append(args, "READ", len(read)), anys(read)...)
		}
		if len(g.write) > 0 {
			args = append(append(args, "WRITE", len(g.write)), anys(g.write)...)
		}
	case len(g.write) > 0:
		args = []any{"RWLOCK.WLOCK", g.names[0], g.owner.ID, g.millis()}
	default:
		args = []any{"RWLOCK.RLOCK", g.names[0], g.owner.ID, g.millis()}
	}
	if err := g.ask(ctx, wait, fence, args...); err != nil {
		if !g.session && !refused(err) {
			go g.forsake() // no answer may have come although the server granted it
		}
		return err
	}
	g.locks.mu.Lock()
	defer g.locks.mu.Unlock()
	if g.locks.closed { // which closed the connection of a session as well
		return usage("these Locks are closed")
	}
	g.pending = false
	g.locks.grants[g] = true
	if g.session {
		stop := context.AfterFunc(g.conn.ctx, func() { g.lose("its connection was closed") })
		context.AfterFunc(g.ctx, func() { stop() })
	}
	go g.watch()
	return nil
}

// ask sends a request that may wait.
func (g *grant) ask(ctx context.Context, wait time.Duration, fence bool, args ...any) error {
	// ONCE: a request that is sent again after a lost answer counts once.
	args = append(args, "ONCE")
	if g.session {
		args = append(args, "SESSION")
	}
	if fence {
		args = append(args, "FENCE")
	}
	reply, c, err := g.locks.ask(ctx, g.conn, g.names[0], wait, args...)
	if err != nil {
		return g.failed(err)
	}
	held, isHeld := reply.(int64)
	if c != g.conn && (isHeld || !g.session) {
		g.locks.keep(c)
	}
	if isHeld {
		return timedOut(g.String(), held)
	}
	if g.session {
		g.conn = c
	}
	g.renewed(time.Now())
	if granted, ok := reply.([]any); ok {
		written := g.write
		if len(g.names) == 1 {
			written = g.names // an upgrade, too
		}
		g.locks.mu.Lock()
		defer g.locks.mu.Unlock()
		for i, token := range granted[1:] {
			g.tokens[written[i]], _ = token.(int64)
		}
	}
	return nil
}

// watch renews a plain lease. The server renews a session by itself; asking it shows also
// a session that ended while its connection stayed open: by FORCEUNLOCK, or by a failover.
func (g *grant) watch() {
	tick := time.NewTicker(g.lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
		}
		end := *g.end.Load()
		limit := end.Add(-g.lease / 10)
		if g.session { // a process that stalled for a lease keeps its session all the same
			limit = time.Now().Add(g.lease)
		}
		ctx, cancel := context.WithDeadline(g.ctx, limit)
		err := g.check(ctx)
		cancel()
		if err != nil && time.Until(end) < g.lease*3/10 { // too short for another turn
			g.lose("it could not be renewed in time")
		}
	}
}

// check lets the lease begin anew.
func (g *grant) check(ctx context.Context) error {
	asked := time.Now()
	args := []any{"RWLOCK.RENEW", g.names[0], g.owner.ID, g.millis()}
	if len(g.names) > 1 {
		args = append([]any{"RWLOCK.MRENEW", g.owner.ID, g.millis()}, anys(g.names)...)
	}
	reply, err := g.tell(ctx, args...)
	if err == nil {
		err = g.missing(reply, 0)
	}
	if err == nil {
		g.renewed(asked)
	}
	return err
}

// tell sends a command that does not wait.
func (g *grant) tell(ctx context.Context, args ...any) (any, error) {
	if err := context.Cause(g.ctx); err != nil {
		return nil, err
	}
	reply, c, err := g.locks.ask(ctx, nil, g.names[0], 0, args...)
	if err == nil {
		g.locks.keep(c)
	} else if lost := context.Cause(g.ctx); lost != nil {
		err = lost
	}
	return reply, g.failed(err)
}

// missing is an error if that is the answer for one of several locks.
func (g *grant) missing(reply any, answer int64) error {
	replies, _ := reply.([]any)
	for i, one := range replies {
		if one == answer {
			return g.failed(&Error{Kind: ErrNotHeld, text: g.names[i]})
		}
	}
	return nil
}

func (g *grant) failed(err error) error {
	if errors.Is(err, ErrNotHeld) {
		g.cancel(err)
	}
	return err
}

// leave counts one Hold less. The last one gives the locks back.
func (g *grant) leave() error {
	g.locks.mu.Lock()
	g.depth--
	last, pending := g.depth == 0, g.pending
	if last {
		delete(g.locks.grants, g)
		for _, name := range g.names {
			delete(g.owner.held, name)
		}
	}
	g.locks.mu.Unlock()
	if !last || pending {
		return nil
	}
	err := g.failed(g.giveBack())
	g.cancel(context.Canceled)
	switch {
	case err == nil && g.session:
		g.locks.keep(g.conn)
	case err != nil:
		if g.session {
			g.conn.Close() // the server gives it back
		}
		go g.forsake()
	}
	return err
}

func (g *grant) giveBack() error {
	conn := g.conn
	for again := false; ; again = true {
		if err := context.Cause(g.ctx); err != nil {
			return err
		}
		reply, c, err := g.locks.ask(g.ctx, conn, g.names[0], 0, g.unlock()...)
		if err == nil {
			if c != g.conn {
				g.locks.keep(c)
			}
			return g.missing(reply, -1)
		}
		inTime := time.Now().Before(*g.end.Load())
		switch {
		case again && inTime && errors.Is(err, ErrNotHeld):
			return nil // the lease has not ended: an earlier request got through
		case !passing(err) && !errors.Is(err, ErrTimedOut):
			return err
		case !inTime:
			return &Error{Kind: ErrNotHeld, text: g.String() + " could not be given back", cause: err}
		}
		conn = nil
		sleep(g.ctx, pause)
	}
}

func (g *grant) unlock() []any {
	if len(g.names) == 1 {
		return []any{"RWLOCK.UNLOCK", g.names[0], g.owner.ID, "ALL"}
	}
	return append([]any{"RWLOCK.MUNLOCK", g.owner.ID, "ALL", len(g.names)}, anys(g.names)...)
}

// forsake gives back what may still stand at the server though nobody has it.
func (g *grant) forsake() {
	if _, c, err := g.locks.ask(context.Background(), nil, g.names[0], 0, g.unlock()...); err == nil {
		g.locks.keep(c)
	}
}

func anys(names []string) []any {
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = name
	}
	return list
}
