package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rwlock-example/rwlock"
)

var ctx = context.Background()

func client(t *testing.T) *redis.Client {
	options, err := redis.ParseURL(os.Getenv("RWLOCK_URL"))
	if err != nil {
		t.Fatal("RWLOCK_URL:", err)
	}
	c := redis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	return c
}

func owner(t *testing.T, c *redis.Client) *rwlock.Owner {
	o := rwlock.NewOwner(c)
	t.Cleanup(o.Close)
	return o
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err, expected error) {
	t.Helper()
	if !errors.Is(err, expected) {
		t.Fatalf("%v, expected %v", err, expected)
	}
}

// key is a lock of this test's own.
func key(t *testing.T) string { return fmt.Sprintf("go:%s:%d", t.Name(), time.Now().UnixNano()) }

// waiter waits until one client waits for the lock, and tells its id.
func waiter(t *testing.T, c *redis.Client, key string) int64 {
	t.Helper()
	for range 1000 {
		seen, err := c.Do(ctx, "RWLOCK.INSPECT", key).Result()
		ok(t, err)
		if waiters := seen.(map[any]any)["waiters"].([]any); len(waiters) == 1 {
			return waiters[0].(map[any]any)["client"].(int64)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody waits")
	return 0
}

// inBackground takes the write lock, and gives it back.
func inBackground(o *rwlock.Owner, key string, options rwlock.Options) chan error {
	done := make(chan error, 1)
	go func() {
		lock, err := o.Lock(ctx, key, options)
		if err == nil {
			err = lock.Unlock()
		}
		done <- err
	}()
	return done
}

func TestReadersShareAndWritersExclude(t *testing.T) {
	c, k := client(t), key(t)
	ann, bob := owner(t, c), owner(t, c)
	a, err := ann.RLock(ctx, k, rwlock.Options{})
	ok(t, err)
	b, err := bob.RLock(ctx, k, rwlock.Options{Session: true})
	ok(t, err)
	_, err = ann.RLock(ctx, k, rwlock.Options{})
	fails(t, err, rwlock.ErrReentry)
	cat := owner(t, c)
	_, err = cat.Lock(ctx, k, rwlock.Options{Wait: 20 * time.Millisecond})
	fails(t, err, rwlock.ErrTimedOut)
	ok(t, a.Unlock())
	ok(t, b.Unlock())
	fails(t, b.Unlock(), rwlock.ErrNotHeld)
	last := int64(0)
	for range 3 {
		w, err := cat.Lock(ctx, k, rwlock.Options{Fence: true})
		ok(t, err)
		if w.Token <= last {
			t.Fatalf("token %d after %d", w.Token, last)
		}
		last = w.Token
		ok(t, w.Unlock())
	}
}

// go-redis gives up reading after 5 s if nothing else is said.
func TestAWaitOutlastsTheReadTimeout(t *testing.T) {
	c, k := client(t), key(t)
	a, err := owner(t, c).Lock(ctx, k, rwlock.Options{})
	ok(t, err)
	done := inBackground(owner(t, c), k, rwlock.Options{Wait: 20 * time.Second})
	id := waiter(t, c, k)
	time.Sleep(c.Options().ReadTimeout + time.Second)
	if waiter(t, c, k) != id {
		t.Fatal("it asked again")
	}
	ok(t, a.Unlock())
	ok(t, <-done)
}

func TestALeaseIsRenewedAndItsLossIsTold(t *testing.T) {
	c, k := client(t), key(t)
	a, err := owner(t, c).Lock(ctx, k, rwlock.Options{Lease: 300 * time.Millisecond})
	ok(t, err)
	time.Sleep(900 * time.Millisecond)
	ok(t, a.Check(ctx))
	ok(t, c.Do(ctx, "RWLOCK.FORCEUNLOCK", k).Err())
	select {
	case <-a.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("not told")
	}
	fails(t, a.Check(ctx), rwlock.ErrNotHeld)
	fails(t, a.Unlock(), rwlock.ErrNotHeld)
}

func TestASessionEndsWithItsConnection(t *testing.T) {
	c, k := client(t), key(t)
	ann := owner(t, c)
	a, err := ann.Lock(ctx, k, rwlock.Options{Lease: time.Minute, Session: true})
	ok(t, err)
	done := inBackground(owner(t, c), k, rwlock.Options{Wait: 20 * time.Second})
	waiter(t, c, k)
	ann.Close()
	ok(t, <-done)
	fails(t, a.Unlock(), rwlock.ErrNotHeld)
}

func TestDeadlockIsAnError(t *testing.T) {
	c, k := client(t), key(t)
	ann, bob := owner(t, c), owner(t, c)
	a, err := ann.Lock(ctx, k, rwlock.Options{})
	ok(t, err)
	b, err := bob.Lock(ctx, k+":2", rwlock.Options{})
	ok(t, err)
	done := inBackground(ann, k+":2", rwlock.Options{})
	waiter(t, c, k+":2")
	_, err = bob.Lock(ctx, k, rwlock.Options{})
	fails(t, err, rwlock.ErrDeadlock)
	ok(t, b.Unlock())
	ok(t, <-done)
	ok(t, a.Unlock())
}

func TestCancellingEndsTheWait(t *testing.T) {
	c, k := client(t), key(t)
	a, err := owner(t, c).Lock(ctx, k, rwlock.Options{})
	ok(t, err)
	ours, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := owner(t, c).Lock(ours, k, rwlock.Options{})
		done <- err
	}()
	waiter(t, c, k)
	cancel()
	fails(t, <-done, context.Canceled)
	ok(t, a.Unlock())
	b, err := owner(t, c).Lock(ctx, k, rwlock.Options{Wait: 5 * time.Second})
	ok(t, err)
	ok(t, b.Unlock())
}

func TestAWaitGoesOnAfterTheConnectionBroke(t *testing.T) {
	c, k := client(t), key(t)
	a, err := owner(t, c).Lock(ctx, k, rwlock.Options{})
	ok(t, err)
	done := inBackground(owner(t, c), k, rwlock.Options{Wait: 20 * time.Second})
	id := waiter(t, c, k)
	ok(t, c.Do(ctx, "CLIENT", "KILL", "ID", id).Err())
	for waiter(t, c, k) == id {
		time.Sleep(5 * time.Millisecond)
	}
	ok(t, a.Unlock())
	ok(t, <-done)
}

func TestAWaitGoesOnAfterAFailover(t *testing.T) {
	c, k := client(t), key(t)
	a, err := owner(t, c).Lock(ctx, k, rwlock.Options{})
	ok(t, err)
	done := inBackground(owner(t, c), k, rwlock.Options{Wait: 20 * time.Second})
	waiter(t, c, k)
	ok(t, c.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	time.Sleep(200 * time.Millisecond)
	ok(t, c.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	waiter(t, c, k)
	ok(t, a.Unlock())
	ok(t, <-done)
}
