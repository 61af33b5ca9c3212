// Package rwlock takes the read/write locks of the rwlock module with go-redis.
//
//	me := rwlock.NewOwner(client) // one for each goroutine that locks
//	defer me.Close()
//	lock, err := me.Lock(ctx, "orders", rwlock.Options{Wait: 5 * time.Second})
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock()
package rwlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var (
	ErrTimedOut = errors.New("rwlock: not granted in time")
	ErrNotHeld  = errors.New("rwlock: the lock was lost before it was given back")
	ErrDeadlock = errors.New("rwlock: waiting would never end")
	ErrReentry  = errors.New("rwlock: this owner has the lock already")
)

const (
	grace = 10 * time.Second      // what an answer may take beyond the time to wait
	pause = 50 * time.Millisecond // between two tries on a server that is not ready
)

// Options of an acquisition. The zero value waits for ever, with a lease of 30 s.
type Options struct {
	Wait    time.Duration // how long to wait at most; 0: for ever
	Lease   time.Duration // how long the lock outlives a crash of this process
	Session bool          // the lock ends with this owner's connection, the server renews it
	Fence   bool          // Lock only: hand out a fencing token
}

// Owner is who holds locks: one goroutine at a time. It has connections of its
// own, because a command that waits blocks its connection, and because a session
// lives as long as its connection.
type Owner struct {
	ID     string
	client redis.UniversalClient
	conns  map[string]*redis.Client
	held   map[string]bool
}

func NewOwner(client redis.UniversalClient) *Owner {
	return &Owner{rand.Text(), client, map[string]*redis.Client{}, map[string]bool{}}
}

// Close ends the owner's connections, and with them its session locks.
func (o *Owner) Close() {
	for addr, conn := range o.conns {
		delete(o.conns, addr)
		conn.Close()
	}
}

// Lock is a lock that is held.
type Lock struct {
	Token int64 // the fencing token, if one was asked for

	owner     *Owner
	key, kind string
	options   Options
	validTill time.Time // when the lease ends at the earliest
	lost      chan struct{}
	stop      func()
}

// RLock takes the lock for reading, beside other readers.
func (o *Owner) RLock(ctx context.Context, key string, options Options) (*Lock, error) {
	options.Fence = false
	return o.acquire(ctx, key, "READ", "RWLOCK.RLOCK", options)
}

// Lock takes the lock for writing, alone.
func (o *Owner) Lock(ctx context.Context, key string, options Options) (*Lock, error) {
	return o.acquire(ctx, key, "WRITE", "RWLOCK.WLOCK", options)
}

func (o *Owner) acquire(ctx context.Context, key, kind, command string, options Options) (*Lock, error) {
	if o.held[kind+key] {
		return nil, ErrReentry
	}
	if options.Lease == 0 {
		options.Lease = 30 * time.Second
	}
	start := time.Now()
	for {
		block := int64(0)
		if options.Wait > 0 {
			block = max(1, (options.Wait - time.Since(start)).Milliseconds())
		}
		// ONCE: asking again after a lost answer does not count twice.
		args := []any{command, key, o.ID, options.Lease.Milliseconds(), "BLOCK", block, "ONCE"}
		if options.Session {
			args = append(args, "SESSION")
		}
		if options.Fence {
			args = append(args, "FENCE")
		}
		limit := time.Duration(0)
		if options.Wait > 0 {
			limit = time.Duration(block)*time.Millisecond + grace
		}
		reply, err := o.send(ctx, limit, key, args...)
		if err == nil {
			lock := &Lock{owner: o, key: key, kind: kind, options: options, lost: make(chan struct{})}
			switch granted := reply.(type) {
			case int64:
				return nil, ErrTimedOut
			case []any:
				lock.Token = granted[1].(int64)
			}
			o.held[kind+key] = true
			lock.renew()
			return lock, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !passing(err) {
			return nil, named(err)
		}
		if options.Wait > 0 && time.Since(start) > options.Wait {
			return nil, fmt.Errorf("%w: %w", ErrTimedOut, err)
		}
		time.Sleep(pause)
	}
}

// Lost is closed when the lock is known to be lost: stop to touch what it
// protects. A session lock is not watched; ask with Check.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Check asks the server whether the lock is still held.
func (l *Lock) Check(ctx context.Context) error {
	return named(l.owner.client.Do(ctx, "RWLOCK.RENEW", l.key, l.owner.ID, l.options.Lease.Milliseconds()).Err())
}

// renew lengthens the lease every third of it, through the ordinary client: the
// owner's own connection may be waiting for another lock.
func (l *Lock) renew() {
	l.validTill = time.Now().Add(l.options.Lease)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.stop = func() { cancel(); <-done }
	if l.options.Session {
		close(done)
		return
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(l.options.Lease / 3):
			}
			asked := time.Now()
			err := l.Check(ctx)
			if err == nil {
				l.validTill = asked.Add(l.options.Lease)
			} else if ctx.Err() == nil && (errors.Is(err, ErrNotHeld) || time.Now().After(l.validTill)) {
				close(l.lost)
				return
			}
		}
	}()
}

// Unlock gives the lock back. ErrNotHeld says that it was lost before: somebody
// else may have worked at the same time.
func (l *Lock) Unlock() error {
	if !l.owner.held[l.kind+l.key] {
		return ErrNotHeld
	}
	l.stop()
	delete(l.owner.held, l.kind+l.key)
	again := false
	for {
		_, err := l.owner.send(context.Background(), grace, l.key, "RWLOCK.UNLOCK", l.key, l.owner.ID, l.kind)
		err = named(err)
		inTime := time.Now().Before(l.validTill)
		if again && inTime && errors.Is(err, ErrNotHeld) && !l.options.Session {
			return nil // the lease cannot have lapsed: the first request got through
		}
		if err == nil || !passing(err) || !inTime {
			return err
		}
		again = true
		time.Sleep(pause)
	}
}

// send asks the server that has the key, on this owner's own connection. A limit
// of 0 is none. Closing the connection is what ends a wait early: the server then
// forgets the waiter.
func (o *Owner) send(ctx context.Context, limit time.Duration, key string, args ...any) (any, error) {
	conn, err := o.conn(ctx, key)
	if err != nil {
		return nil, err
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	reply, err := conn.Do(context.WithoutCancel(ctx), args...).Result()
	if err != nil && (!answered(err) || redis.HasErrorPrefix(err, "READONLY")) {
		delete(o.conns, conn.Options().Addr) // the next try looks for the primary anew
		conn.Close()
	}
	if cluster, ok := o.client.(*redis.ClusterClient); ok && err != nil && passing(err) {
		cluster.ReloadState(ctx)
	}
	return reply, err
}

// conn is a client with one connection, of which this owner is the only user.
func (o *Owner) conn(ctx context.Context, key string) (*redis.Client, error) {
	node, _ := o.client.(*redis.Client)
	if cluster, ok := o.client.(*redis.ClusterClient); ok {
		var err error
		if node, err = cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	options := *node.Options()
	if conn := o.conns[options.Addr]; conn != nil {
		return conn, nil
	}
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns = 1, 0, 0
	options.ReadTimeout = -1     // an answer may take as long as the wait
	options.MaxRetries = -1      // we ask again ourselves, with the time that is left
	options.ConnMaxIdleTime = -1 // an idle session is a session
	options.ConnMaxLifetime = -1
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	conn := redis.NewClient(&options)
	o.conns[options.Addr] = conn
	return conn, nil
}

// answered tells an error that the server replied from a connection that failed.
func answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// passing tells what a failover, a restart or a moving slot answers: ask again.
func passing(err error) bool {
	if errors.Is(err, ErrNotHeld) || errors.Is(err, ErrDeadlock) {
		return false
	}
	for _, prefix := range []string{"UNBLOCKED", "READONLY", "LOADING", "TRYAGAIN", "MOVED", "CLUSTERDOWN", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return !answered(err)
}

func named(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), "NOTHELD"):
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	case strings.HasPrefix(err.Error(), "DEADLOCK"):
		return fmt.Errorf("%w: %w", ErrDeadlock, err)
	}
	return err
}
