// Package rwlock takes the read/write locks of the rwlock module with go-redis.
//
//	locks := rwlock.New(client, "nightly-report") // one for the whole process
//	defer locks.Close()
//
//	hold, err := locks.Lock(ctx, "orders", rwlock.Options{Wait: 5 * time.Second, Fence: true})
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock()
//	return save(hold.Context(), order, hold.Token)
//
// Copy this folder. Licence: that of the module, MIT.
package rwlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Forever is an Options.Wait without limit.
const Forever time.Duration = math.MaxInt64

// Options of a request. The zero value tries once, and takes a session.
type Options struct {
	Wait       time.Duration // how long to wait at most; 0: try once
	Lease      time.Duration // how long the hold lasts after its session or the last renewal; 0: 30 s
	PlainLease bool          // no session: a goroutine renews the hold
	Fence      bool          // get a fencing token (write holds only)
	Owner      *Owner        // enter the locks of this owner again; nil: a new owner
}

// Owner is one flow of work, made by NewOwner. It can take a lock again that it holds, and
// the server finds deadlocks by owner. Goroutines with the same owner do not exclude each other.
type Owner struct {
	ID   string
	held map[string]*grant // by lock
}

// Locks are the locks of a server or a cluster.
type Locks struct {
	connections
	program string // name@host:pid

	mu     sync.Mutex // guards all owners, grants and holds
	closed bool
	grants map[*grant]bool
}

// New returns the locks of the server that the client is connected to. The server shows
// the name, of a program or a job, with each holder and connection. "": the program's name.
func New(client redis.UniversalClient, name string) *Locks {
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	host, _ := os.Hostname()
	program := fmt.Sprintf("%s@%s:%d", plain(name, 100), plain(host, 50), os.Getpid())
	return &Locks{
		connections: newConnections(client, program),
		program:     program,
		grants:      map[*grant]bool{},
	}
}

// plain keeps what a connection's name may have.
func plain(text string, length int) string {
	text = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return '-'
		}
		return r
	}, text)
	return text[:min(len(text), length)]
}

// NewOwner returns an owner for Options.Owner.
func (l *Locks) NewOwner() *Owner {
	return &Owner{ID: l.program + ":" + rand.Text(), held: map[string]*grant{}}
}

// Close ends all waits, renewals and connections, and with them the holds. Your client
// stays open.
func (l *Locks) Close() {
	l.mu.Lock()
	l.closed = true
	grants := maps.Clone(l.grants)
	l.mu.Unlock()
	for g := range grants {
		g.lose("its Locks were closed")
	}
	l.connections.close()
}

// Lock takes a lock for writing, alone.
func (l *Locks) Lock(ctx context.Context, name string, o Options) (*Hold, error) {
	return l.LockAll(ctx, nil, []string{name}, o)
}

// RLock takes a lock for reading, beside other readers.
func (l *Locks) RLock(ctx context.Context, name string, o Options) (*Hold, error) {
	return l.LockAll(ctx, []string{name}, nil, o)
}

// TryLock is Lock without waiting. It returns false when the lock is not granted at once.
func (l *Locks) TryLock(ctx context.Context, name string, o Options) (*Hold, bool, error) {
	o.Wait = 0
	return granted(l.Lock(ctx, name, o))
}

// TryRLock is RLock without waiting. It returns false when the lock is not granted at once.
func (l *Locks) TryRLock(ctx context.Context, name string, o Options) (*Hold, bool, error) {
	o.Wait = 0
	return granted(l.RLock(ctx, name, o))
}

func granted(hold *Hold, err error) (*Hold, bool, error) {
	if refused(err) {
		return nil, false, nil
	}
	return hold, err == nil, err
}

// WithLock calls work with a write hold, and unlocks it. It returns the errors of both.
func (l *Locks) WithLock(ctx context.Context, name string, o Options, work func(*Hold) error) error {
	hold, err := l.Lock(ctx, name, o)
	return hold.with(work, err)
}

// WithRLock calls work with a read hold, and unlocks it. It returns the errors of both.
func (l *Locks) WithRLock(ctx context.Context, name string, o Options, work func(*Hold) error) error {
	hold, err := l.RLock(ctx, name, o)
	return hold.with(work, err)
}

// LockAll takes several locks in one step, or none of them.
func (l *Locks) LockAll(ctx context.Context, read, write []string, o Options) (*Hold, error) {
	outer, _ := ctx.Value(holdKey{}).(*Hold)
	if outer != nil && outer.locks != l {
		outer = nil
	}
	hold := &Hold{locks: l, owner: o.Owner, outer: outer}
	if o.Owner == nil {
		hold.owner = l.NewOwner()
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}

	l.mu.Lock()
	g, err := hold.enter(read, write, o)
	l.mu.Unlock()
	if err == nil && len(g.names) > 0 {
		err = g.acquire(ctx, o.Wait, o.Fence)
	}
	if err != nil {
		hold.leave()
		return nil, err
	}
	l.mu.Lock()
	hold.collectTokens()
	l.mu.Unlock()
	hold.ctx, hold.cancel = context.WithCancelCause(context.WithValue(ctx, holdKey{}, hold))
	for _, g := range hold.grants {
		stop := context.AfterFunc(g.ctx, func() { hold.cancel(context.Cause(g.ctx)) })
		context.AfterFunc(hold.ctx, func() { stop() })
	}
	return hold, nil
}

// Hold is a hold on one lock, or on several that were taken in one step.
type Hold struct {
	Token  int64            // the fencing token, if there is one
	Tokens map[string]int64 // the fencing tokens of several locks

	locks    *Locks
	owner    *Owner
	outer    *Hold // the hold that the context of the request belongs to
	grants   []*grant
	ctx      context.Context
	cancel   context.CancelCauseFunc
	released bool
}

type holdKey struct{} // of a Hold in its context

// Context is the context of the request, but ends with the hold. Do the work with it: then
// the work stops when the hold is lost. context.Cause tells the reason.
func (h *Hold) Context() context.Context { return h.ctx }

// Lost tells whether the hold is known to be lost.
func (h *Hold) Lost() bool { return slices.ContainsFunc(h.grants, (*grant).lost) }

// Owner is for Options.Owner: to enter the same lock again, or to take another one.
func (h *Hold) Owner() *Owner { return h.owner }

// Check asks the server whether the hold still stands, and makes it last a lease longer.
func (h *Hold) Check(ctx context.Context) error {
	err := h.use(false)
	for _, g := range h.grants {
		if err == nil {
			err = g.check(ctx)
		}
	}
	return err
}

// Unlock gives the hold back. ErrNotHeld says that it was lost before: another owner may
// have worked at the same time.
func (h *Hold) Unlock() error {
	if err := h.use(true); err != nil {
		return err
	}
	h.cancel(context.Canceled)
	return h.leave()
}

// Upgrade goes from reading to writing with no gap. It looks at Wait and Fence. After
// ErrTimedOut or ErrDeadlock the hold still reads. If ctx ends the wait, the hold is lost.
func (h *Hold) Upgrade(ctx context.Context, o Options) error {
	g, err := h.only("upgraded")
	if err != nil || len(g.write) > 0 {
		return err
	}
	err = g.ask(ctx, o.Wait, o.Fence, "RWLOCK.UPGRADE", g.names[0], g.owner.ID, g.millis())
	return h.turn(g, g.names, err)
}

// Downgrade goes from writing to reading with no gap.
func (h *Hold) Downgrade(ctx context.Context) error {
	g, err := h.only("downgraded")
	if err != nil || len(g.write) == 0 {
		return err
	}
	_, err = g.tell(ctx, "RWLOCK.DOWNGRADE", g.names[0], g.owner.ID, g.millis())
	return h.turn(g, nil, err)
}

func (h *Hold) turn(g *grant, write []string, err error) error {
	if err != nil {
		return err
	}
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	g.write = write
	if len(write) == 0 {
		clear(g.tokens)
	}
	h.collectTokens()
	return nil
}

// use checks that the hold was not unlocked before.
func (h *Hold) use(release bool) error {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	if h.released {
		return &Error{Kind: ErrReleased, text: fmt.Sprint(h.grants)}
	}
	h.released = release
	return nil
}

// only is the grant of a hold on one lock that no other Hold shares.
func (h *Hold) only(done string) (*grant, error) {
	if err := h.use(false); err != nil {
		return nil, err
	}
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	if len(h.grants) != 1 || len(h.grants[0].names) != 1 {
		return nil, usage("only a hold on one lock can be %s", done)
	}
	g := h.grants[0]
	if g.depth > 1 {
		return nil, usage("%s was entered again: it cannot be %s now", g, done)
	}
	return g, context.Cause(g.ctx)
}

// enter joins the grants that the owner has on these locks, and returns one to acquire for
// the other locks. Needs the mutex.
func (h *Hold) enter(read, write []string, o Options) (*grant, error) {
	g := newGrant(h.locks, h.owner, o)
	names := slices.Concat(write, read)
	for i, name := range names {
		writes := i < len(write)
		had := h.owner.held[name]
		switch {
		case h.locks.closed:
			return nil, usage("these Locks are closed")
		case slices.Contains(names[:i], name):
			return nil, usage("lock %s is named twice", name)
		case had == nil && o.Owner == nil && h.outer.covers(name):
			return nil, usage("ctx belongs to a hold on %s: give the owner of that hold to enter it again", name)
		case had == nil:
			h.owner.held[name] = g
			if len(g.names) == 0 {
				h.grants = append(h.grants, g)
			}
			g.names = append(g.names, name)
			if writes {
				g.write = append(g.write, name)
			}
		case had.pending:
			return nil, usage("this owner asks for %s already", name)
		case had.lost():
			return nil, context.Cause(had.ctx)
		case writes && !slices.Contains(had.write, name):
			return nil, &Error{Kind: ErrDeadlock, text: name + ": this owner reads it. Upgrade that hold"}
		case writes && o.Fence && had.tokens[name] == 0:
			return nil, usage("%s is held without a fencing token: ask for it where you take it first", name)
		case !slices.Contains(h.grants, had):
			had.depth++
			h.grants = append(h.grants, had)
		}
	}
	return g, nil
}

// covers tells whether this hold, or one around it, is on the lock. Needs the mutex.
func (h *Hold) covers(name string) bool {
	return h != nil && (!h.released && h.owner.held[name] != nil || h.outer.covers(name))
}

// leave gives back what no other Hold shares.
func (h *Hold) leave() error {
	var errs []error
	for _, g := range h.grants {
		errs = append(errs, g.leave())
	}
	return errors.Join(errs...)
}

func (h *Hold) with(work func(*Hold) error, failed error) (err error) {
	if failed != nil {
		return failed
	}
	defer func() { // also when work panics
		if unlocked := h.Unlock(); !errors.Is(unlocked, ErrReleased) {
			err = errors.Join(err, unlocked)
		}
	}()
	return work(h)
}

// collectTokens needs the mutex.
func (h *Hold) collectTokens() {
	h.Token, h.Tokens = 0, map[string]int64{}
	for _, g := range h.grants {
		for name, token := range g.tokens {
			h.Token, h.Tokens[name] = token, token
		}
	}
}
