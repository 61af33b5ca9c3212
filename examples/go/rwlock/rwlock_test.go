// The tests run on the server at RWLOCK_URL, and on servers that they start themselves:
// RWLOCK_SERVER with the module RWLOCK_MODULE. The rows are those of ../../README.md.
package rwlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"rwlock-example/rwlock"
)

var (
	ctx     = context.Background()
	forever = rwlock.Options{Wait: rwlock.Forever}
	patient = rwlock.Options{Wait: 20 * time.Second}
	plain   = rwlock.Options{PlainLease: true, Lease: 400 * time.Millisecond}
)

// A process that only holds a lock, until it is killed.
func TestMain(m *testing.M) {
	if key := os.Getenv("RWLOCK_TEST_HOLD"); key != "" {
		options, _ := redis.ParseURL(os.Getenv("RWLOCK_URL"))
		_, err := rwlock.New(redis.NewClient(options), "").Lock(ctx, key, rwlock.Options{})
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
}

// place is a client, its locks, and the name of a lock of this test alone.
type place struct {
	*testing.T
	client *redis.Client
	*rwlock.Locks
	key string
}

func at(t *testing.T, url string) *place {
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal("RWLOCK_URL:", err)
	}
	client := redis.NewClient(options)
	locks := rwlock.New(client, "")
	t.Cleanup(func() { locks.Close(); client.Close() })
	return &place{t, client, locks, fmt.Sprintf("go:%s:%d", t.Name(), time.Now().UnixNano())}
}

func here(t *testing.T) *place { return at(t, os.Getenv("RWLOCK_URL")) }

func (p *place) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) fails(err, expected error) {
	p.Helper()
	if !errors.Is(err, expected) {
		p.Fatalf("%v, expected %v", err, expected)
	}
}

func (p *place) until(what string, condition func() bool) {
	p.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("never: ", what)
		}
	}
}

func (p *place) lock(o rwlock.Options) *rwlock.Hold {
	p.Helper()
	hold, err := p.Lock(ctx, p.key, o)
	p.ok(err)
	return hold
}

func (p *place) read(o rwlock.Options) *rwlock.Hold {
	p.Helper()
	hold, err := p.RLock(ctx, p.key, o)
	p.ok(err)
	return hold
}

func (p *place) inspect(key string) map[any]any {
	p.Helper()
	seen, err := p.client.Do(ctx, "RWLOCK.INSPECT", key).Result()
	p.ok(err)
	return seen.(map[any]any)
}

func (p *place) mode(expected string) {
	p.Helper()
	if mode := p.inspect(p.key)["mode"]; mode != expected {
		p.Fatalf("the lock is %v, expected %s", mode, expected)
	}
}

func (p *place) session() int64 {
	p.Helper()
	return p.inspect(p.key)["holders"].([]any)[0].(map[any]any)["session"].(int64)
}

// waiter waits until one client waits for the lock, and returns its id.
func (p *place) waiter() (id int64) {
	p.Helper()
	p.until("one waiter", func() bool {
		waiters := p.inspect(p.key)["waiters"].([]any)
		if len(waiters) == 1 {
			id = waiters[0].(map[any]any)["client"].(int64)
		}
		return len(waiters) == 1
	})
	return id
}

func (p *place) nobodyWaits() {
	p.Helper()
	p.until("no waiter", func() bool { return len(p.inspect(p.key)["waiters"].([]any)) == 0 })
}

// later takes the write lock in a goroutine, and gives it back.
func (p *place) later(key string, o rwlock.Options) chan error {
	done := make(chan error, 1)
	go func() { done <- p.WithLock(ctx, key, o, func(*rwlock.Hold) error { return nil }) }()
	return done
}

// lost waits until the hold is lost, and until its context tells it.
func (p *place) lost(hold *rwlock.Hold, within time.Duration) {
	p.Helper()
	select {
	case <-hold.Context().Done():
	case <-time.After(within):
		p.Fatal("the hold does not know that it is lost")
	}
	p.fails(context.Cause(hold.Context()), rwlock.ErrNotHeld)
	if !hold.Lost() {
		p.Fatal("not lost")
	}
	p.fails(hold.Unlock(), rwlock.ErrNotHeld)
}

// row 1
func TestWithoutWaitARequestTriesOnce(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{})
	start := time.Now()
	_, err := p.Lock(ctx, p.key, rwlock.Options{})
	p.fails(err, rwlock.ErrTimedOut)
	if hold, ok, err := p.TryLock(ctx, p.key, forever); hold != nil || ok || err != nil {
		t.Fatal(hold, ok, err)
	}
	if hold, ok, err := p.TryRLock(ctx, p.key, forever); hold != nil || ok || err != nil {
		t.Fatal(hold, ok, err)
	}
	if time.Since(start) > 500*time.Millisecond {
		t.Fatal("it waited")
	}
	_, err = p.Lock(ctx, p.key, rwlock.Options{Wait: 20 * time.Millisecond})
	p.fails(err, rwlock.ErrTimedOut)
	done := p.later(p.key, forever)
	p.waiter()
	p.ok(hold.Unlock())
	p.ok(<-done)
	reader, ok, err := p.TryRLock(ctx, p.key, rwlock.Options{})
	if !ok {
		t.Fatal(err)
	}
	p.ok(p.WithRLock(ctx, p.key, rwlock.Options{}, func(*rwlock.Hold) error { return nil }))
	p.ok(reader.Unlock())
}

// row 1
func TestCancellingEndsTheWait(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{})
	for _, o := range []rwlock.Options{forever, {Wait: rwlock.Forever, PlainLease: true}} {
		ours, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := p.Lock(ours, p.key, o)
			done <- err
		}()
		p.waiter()
		cancel()
		p.fails(<-done, context.Canceled)
		p.nobodyWaits()
	}
	p.ok(hold.Unlock())
	p.ok(<-p.later(p.key, patient))
}

// row 2
func TestASessionEndsWithItsProcess(t *testing.T) {
	p := here(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "RWLOCK_TEST_HOLD="+p.key)
	out, err := child.StdoutPipe()
	p.ok(err)
	p.ok(child.Start())
	said := make([]byte, 100)
	n, _ := out.Read(said)
	if strings.TrimSpace(string(said[:n])) != "<nil>" {
		t.Fatalf("%s", said[:n])
	}
	if p.session() == 0 {
		t.Fatal("no session")
	}
	child.Process.Kill()
	child.Wait()
	start := time.Now()
	p.ok(<-p.later(p.key, patient))
	if time.Since(start) > 5*time.Second {
		t.Fatal("it took a lease")
	}
}

// row 2
func TestAPlainLeaseIsRenewed(t *testing.T) {
	p := here(t)
	hold := p.lock(plain)
	if p.session() != 0 {
		t.Fatal("a session")
	}
	time.Sleep(3 * plain.Lease) // it would have lapsed
	p.mode("write")
	p.ok(hold.Check(ctx))
	p.ok(hold.Unlock())
}

// row 3
func TestAnOwnerEntersAgain(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{})
	mine := rwlock.Options{Owner: hold.Owner()}
	inner := p.lock(mine)
	reader := p.read(mine)
	_, err := p.Lock(ctx, p.key, rwlock.Options{Owner: hold.Owner(), Fence: true})
	p.fails(err, rwlock.ErrUsage)
	_, err = p.Lock(hold.Context(), p.key, forever)
	p.fails(err, rwlock.ErrUsage) // it would wait for itself
	p.ok(hold.Unlock())
	p.mode("write")
	p.ok(inner.Unlock())
	p.ok(reader.Unlock())
	p.mode("free")

	me := p.NewOwner()
	reader = p.read(rwlock.Options{Owner: me})
	_, err = p.Lock(ctx, p.key, rwlock.Options{Owner: me, Wait: rwlock.Forever})
	p.fails(err, rwlock.ErrDeadlock)
	p.ok(reader.Unlock())
}

// row 4
func TestUpgradeAndDowngrade(t *testing.T) {
	p := here(t)
	for _, o := range []rwlock.Options{{}, {PlainLease: true}} {
		hold, other := p.read(o), p.read(o)
		p.fails(hold.Upgrade(ctx, rwlock.Options{}), rwlock.ErrTimedOut)
		upgraded := make(chan error, 1)
		go func() { upgraded <- hold.Upgrade(ctx, rwlock.Options{Wait: 20 * time.Second, Fence: true}) }()
		p.waiter()
		p.fails(other.Upgrade(ctx, patient), rwlock.ErrDeadlock)
		p.ok(other.Unlock())
		p.ok(<-upgraded)
		p.mode("write")
		if hold.Token == 0 {
			t.Fatal("no token")
		}
		p.ok(hold.Downgrade(ctx))
		p.mode("read")
		p.ok(p.read(rwlock.Options{}).Unlock())
		p.ok(hold.Upgrade(ctx, rwlock.Options{}))
		p.ok(hold.Unlock())
		p.mode("free")

		hold = p.lock(o)
		inner := p.lock(rwlock.Options{Owner: hold.Owner()})
		p.fails(hold.Downgrade(ctx), rwlock.ErrUsage)
		p.ok(inner.Unlock())
		p.ok(hold.Downgrade(ctx))
		p.mode("read")
		p.ok(hold.Check(ctx))
		p.ok(hold.Unlock())
		p.mode("free")
	}
}

// row 5
func TestSeveralLocksInOneStep(t *testing.T) {
	p := here(t)
	a, b, c := p.key, p.key+":b", p.key+":c"
	hold, err := p.LockAll(ctx, []string{a}, []string{b, c}, rwlock.Options{Fence: true})
	p.ok(err)
	if len(hold.Tokens) != 2 || hold.Tokens[b] == 0 || hold.Tokens[c] == 0 {
		t.Fatal(hold.Tokens)
	}
	p.mode("read")
	p.ok(hold.Check(ctx))
	_, err = p.LockAll(ctx, nil, []string{a, b}, rwlock.Options{})
	p.fails(err, rwlock.ErrTimedOut)
	done := make(chan error, 1)
	go func() {
		hold, err := p.LockAll(ctx, nil, []string{a, b}, patient)
		if err == nil {
			err = hold.Unlock()
		}
		done <- err
	}()
	p.waiter()
	inner, err := p.LockAll(ctx, []string{b}, []string{b + "2"}, rwlock.Options{Owner: hold.Owner()})
	p.ok(err)
	p.ok(inner.Unlock())
	p.ok(hold.Unlock())
	p.ok(<-done)

	o := plain
	hold, err = p.LockAll(ctx, nil, []string{a, b}, o)
	p.ok(err)
	p.ok(p.client.Do(ctx, "RWLOCK.FORCEUNLOCK", b).Err())
	p.lost(hold, 10*time.Second)
	p.until("free", func() bool { return p.inspect(a)["mode"] == "free" })
}

// row 5
func TestALockThatIsNamedTwiceIsRefused(t *testing.T) {
	p := here(t)
	owner := p.NewOwner()
	for range 2 { // the second time the owner holds it
		for _, read := range [][]string{{p.key, "other", p.key}, {p.key}} {
			var write []string
			if len(read) == 1 {
				write = read
			}
			_, err := p.LockAll(ctx, read, write, rwlock.Options{Wait: patient.Wait, Owner: owner})
			p.fails(err, rwlock.ErrUsage)
			if !strings.Contains(err.Error(), "lock "+p.key+" is named twice") {
				t.Fatal(err)
			}
		}
		hold, err := p.Lock(ctx, p.key, rwlock.Options{Owner: owner})
		p.ok(err)
		defer hold.Unlock()
	}
}

// row 6: Lock and Unlock are everywhere here, this is the form with a function.
func TestWithLock(t *testing.T) {
	p := here(t)
	mine := errors.New("its own")
	err := p.WithLock(ctx, p.key, rwlock.Options{}, func(hold *rwlock.Hold) error {
		p.mode("write")
		p.ok(p.client.Do(ctx, "RWLOCK.FORCEUNLOCK", p.key).Err())
		p.fails(hold.Check(hold.Context()), rwlock.ErrNotHeld)
		return mine
	})
	p.fails(err, mine)
	p.fails(err, rwlock.ErrNotHeld)
	p.ok(p.WithLock(ctx, p.key, rwlock.Options{}, func(hold *rwlock.Hold) error { return hold.Unlock() }))
}

// row 7
func TestTheServerShowsTheName(t *testing.T) {
	p := here(t)
	locks := rwlock.New(p.client, "nightly report\n")
	defer locks.Close()
	hold, err := locks.Lock(ctx, p.key, rwlock.Options{})
	p.ok(err)
	holder := p.inspect(p.key)["holders"].([]any)[0].(map[any]any)
	if holder["owner"] != hold.Owner().ID || !regexp.MustCompile(`^nightly-report-@[^ ]+:\d+:\w+$`).MatchString(hold.Owner().ID) {
		t.Fatal(holder)
	}
	list, err := p.client.Do(ctx, "CLIENT", "LIST", "ID", p.session()).Text()
	p.ok(err)
	if !strings.Contains(list, " name=nightly-report-@") {
		t.Fatal(list)
	}
	p.ok(hold.Unlock())
	if id := rwlock.New(p.client, strings.Repeat("x", 500)).NewOwner().ID; len(id) > 200 {
		t.Fatal(id)
	}
	if id := p.NewOwner().ID; !strings.HasPrefix(id, "rwlock.test@") {
		t.Fatal(id)
	}
}

// row 8
func TestAKilledConnectionIsNoticed(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{})
	p.ok(p.client.Do(ctx, "CLIENT", "KILL", "ID", p.session()).Err())
	p.lost(hold, time.Second)
}

// row 8
func TestAHoldThatEndedIsNoticed(t *testing.T) {
	p := here(t)
	for _, o := range []rwlock.Options{plain, {Lease: 400 * time.Millisecond}} {
		hold := p.lock(o)
		p.ok(p.client.Do(ctx, "RWLOCK.FORCEUNLOCK", p.key).Err())
		p.lost(hold, 10*time.Second)
	}
}

// row 8
func TestALeaseThatCannotBeRenewedIsLostInTime(t *testing.T) {
	s := server(t, true)
	p := at(t, s.url)
	hold := p.lock(rwlock.Options{PlainLease: true, Lease: 1500 * time.Millisecond})
	s.signal(syscall.SIGSTOP)
	select {
	case <-hold.Context().Done():
	case <-time.After(1500 * time.Millisecond):
		t.Fatal("the lease has ended")
	}
	p.fails(hold.Unlock(), rwlock.ErrNotHeld)
}

// row 9
func TestAfterARestartTheOldHolderKnows(t *testing.T) {
	s := server(t, true)
	p := at(t, s.url)
	hold := p.lock(rwlock.Options{})
	next := make(chan *rwlock.Hold, 1)
	go func() {
		hold, _ := p.Lock(ctx, p.key, patient)
		next <- hold
	}()
	p.waiter()
	s.stop()
	s.start()
	second := <-next
	if second == nil || !hold.Lost() {
		t.Fatal("both hold it")
	}
	p.fails(hold.Unlock(), rwlock.ErrNotHeld)
	p.ok(second.Check(ctx))
	p.ok(second.Unlock())
}

// timed expects that the lock is not granted within a second.
func (p *place) timed(o rwlock.Options, cause string) {
	p.Helper()
	o.Wait = time.Second
	start := time.Now()
	_, err := p.Lock(ctx, p.key, o)
	took := time.Since(start)
	p.fails(err, rwlock.ErrTimedOut)
	if took < 700*time.Millisecond || took > 2*time.Second || !strings.Contains(err.Error(), cause) {
		p.Fatal(took, err)
	}
}

// row 10
func TestAWaitEndsInTimeDuringAFailover(t *testing.T) {
	p := here(t)
	hold := p.read(rwlock.Options{})
	p.ok(p.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	p.timed(rwlock.Options{}, "READONLY")
	p.ok(p.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	p.ok(hold.Unlock())

	s := server(t, true)
	p = at(t, s.url)
	p.ok(p.lock(rwlock.Options{}).Unlock())
	s.signal(syscall.SIGSTOP)
	p.timed(rwlock.Options{}, "")
	p.timed(rwlock.Options{PlainLease: true}, "")
	s.signal(syscall.SIGCONT)

	fill := `for i = 1, 300 do redis.call("SET", i, string.rep("x", 4096)) end return 1`
	p.ok(p.client.Eval(ctx, fill, nil).Err())
	p.ok(p.client.ConfigSet(ctx, "rdbcompression", "no").Err())
	p.ok(p.client.Save(ctx).Err())
	s.stop()
	p.timed(rwlock.Options{}, "refused")
	s.start("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	p.timed(rwlock.Options{}, "LOADING")
}

// row 10. go-redis gives up reading after the read timeout, if nothing else is said.
func TestAWaitGoesOn(t *testing.T) {
	p := here(t)
	options, _ := redis.ParseURL(os.Getenv("RWLOCK_URL"))
	options.ReadTimeout = 200 * time.Millisecond
	hasty := rwlock.New(redis.NewClient(options), "")
	defer hasty.Close()
	hold := p.read(rwlock.Options{})
	done := make(chan error, 1)
	go func() {
		done <- hasty.WithLock(ctx, p.key, patient, func(*rwlock.Hold) error { return nil })
	}()
	id := p.waiter()
	time.Sleep(2 * options.ReadTimeout) // it would have asked again
	if p.waiter() != id {
		t.Fatal("it asked again")
	}
	p.ok(p.client.Do(ctx, "CLIENT", "KILL", "ID", id).Err())
	p.until("another request", func() bool { return p.waiter() != id })
	p.ok(p.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	p.nobodyWaits()
	time.Sleep(200 * time.Millisecond) // the server answers READONLY meanwhile
	p.ok(p.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	p.waiter()
	p.ok(hold.Unlock())
	p.ok(<-done)
}

// row 10
func TestAnUnlockWhoseAnswerWasLostIsNoLostHold(t *testing.T) {
	options, _ := redis.ParseURL(os.Getenv("RWLOCK_URL"))
	deaf := new(atomic.Int32)
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return &losesAnswer{conn, deaf}, err
	}
	p := here(t)
	locks := rwlock.New(redis.NewClient(options), "")
	defer locks.Close()
	hold, err := locks.Lock(ctx, p.key, rwlock.Options{PlainLease: true})
	p.ok(err)
	p.ok(hold.Unlock())
	if deaf.Load() != 2 {
		t.Fatal("no answer was lost")
	}
}

// losesAnswer loses the answer to the first UNLOCK, and then its connection.
type losesAnswer struct {
	net.Conn
	deaf *atomic.Int32
}

func (l *losesAnswer) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "RWLOCK.UNLOCK") {
		l.deaf.CompareAndSwap(0, 1)
	}
	return l.Conn.Write(p)
}

func (l *losesAnswer) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.deaf.CompareAndSwap(1, 2) {
		return 0, io.EOF
	}
	return n, err
}

// row 11
func TestAWrongPortFailsAtOnce(t *testing.T) {
	p := at(t, "redis://127.0.0.1:1")
	for _, o := range []rwlock.Options{{}, patient} {
		start := time.Now()
		_, err := p.Lock(ctx, p.key, o)
		p.fails(err, syscall.ECONNREFUSED)
		if time.Since(start) > time.Second {
			t.Fatal("it waited")
		}
	}
}

// row 12
func TestAfterCloseNothingRemains(t *testing.T) {
	p := here(t)
	p.mode("free")
	before := runtime.NumGoroutine()
	locks := rwlock.New(p.client, "")
	one, err := locks.Lock(ctx, p.key, rwlock.Options{})
	p.ok(err)
	two, err := locks.Lock(ctx, p.key+":2", plain)
	p.ok(err)
	wait := make(chan error, 1)
	go func() {
		_, err := locks.Lock(ctx, p.key, forever)
		wait <- err
	}()
	p.waiter()
	locks.Close()
	p.fails(<-wait, rwlock.ErrUsage)
	p.lost(one, time.Second)
	p.lost(two, time.Second)
	for _, key := range []string{p.key, p.key + ":2"} {
		p.until("free", func() bool { return p.inspect(key)["mode"] == "free" })
	}
	p.until("no goroutine", func() bool { return runtime.NumGoroutine() <= before })
	_, err = locks.Lock(ctx, p.key, rwlock.Options{})
	p.fails(err, rwlock.ErrUsage)
}

// row 13
func TestASecondUnlockIsAnErrorOfItsOwn(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{})
	p.ok(hold.Unlock())
	p.fails(hold.Unlock(), rwlock.ErrReleased)
	p.fails(hold.Check(ctx), rwlock.ErrReleased)
}

// row 14
func TestAServerWithoutTheModule(t *testing.T) {
	p := at(t, server(t, false).url)
	_, err := p.Lock(ctx, p.key, patient)
	p.fails(err, rwlock.ErrNotLoaded)
	if !strings.Contains(err.Error(), "the rwlock module is not loaded") {
		t.Fatal(err)
	}
}

// row 15
func TestTimedOutTellsHowLong(t *testing.T) {
	p := here(t)
	hold := p.lock(rwlock.Options{Lease: 20 * time.Second})
	var e *rwlock.Error
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		_, err := p.Lock(ctx, p.key, rwlock.Options{Wait: wait})
		if !errors.As(err, &e) || e.Held < 10*time.Second || e.Held > 20*time.Second ||
			!strings.Contains(err.Error(), fmt.Sprint("ends in ", e.Held.Milliseconds(), " ms, unless it is renewed")) {
			t.Fatal(err)
		}
	}
	p.ok(p.client.Persist(ctx, p.key).Err())
	_, err := p.Lock(ctx, p.key, rwlock.Options{})
	if !errors.As(err, &e) || e.Held != rwlock.NoExpiry {
		t.Fatal(err)
	}
	p.ok(hold.Unlock())
}

// row 16
func TestADeadlockIsAnErrorOfItsOwn(t *testing.T) {
	p := here(t)
	ann := p.lock(rwlock.Options{})
	bob, err := p.Lock(ctx, p.key+":2", rwlock.Options{})
	p.ok(err)
	done := p.later(p.key, rwlock.Options{Wait: rwlock.Forever, Owner: bob.Owner()})
	p.waiter()
	_, err = p.Lock(ctx, p.key+":2", rwlock.Options{Wait: rwlock.Forever, Owner: ann.Owner()})
	p.fails(err, rwlock.ErrDeadlock)
	var base *rwlock.Error
	if !errors.As(err, &base) {
		t.Fatalf("%T", err)
	}
	p.ok(ann.Unlock())
	p.ok(<-done)
	p.ok(bob.Unlock())

	p.ok(p.client.Set(ctx, p.key, "no lock", 0).Err())
	_, err = p.Lock(ctx, p.key, patient)
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Fatal(err) // what else the server says stays as it is
	}
}

// row 17
func TestFencingTokensIncrease(t *testing.T) {
	p := here(t)
	last := int64(0)
	for range 3 {
		hold := p.lock(rwlock.Options{Fence: true})
		if hold.Token <= last {
			t.Fatalf("token %d after %d", hold.Token, last)
		}
		last = hold.Token
		p.ok(hold.Unlock())
	}
}

// own is a server of the test's own.
type own struct {
	*testing.T
	url, folder string
	port        int
	module      bool
	process     *exec.Cmd
}

func server(t *testing.T, module bool) *own {
	if os.Getenv("RWLOCK_MODULE") == "" {
		t.Skip("RWLOCK_MODULE does not tell where the module is")
	}
	parsed, _ := url.Parse(os.Getenv("RWLOCK_URL"))
	port, _ := strconv.Atoi(parsed.Port())
	s := &own{T: t, folder: t.TempDir(), port: port + 1, module: module}
	for s.open() {
		s.port++
	}
	s.url = fmt.Sprintf("redis://127.0.0.1:%d", s.port)
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *own) open() bool {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func (s *own) start(args ...string) {
	s.Helper()
	args = append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.folder, "--save", ""}, args...)
	if s.module {
		args = append(args, "--loadmodule", os.Getenv("RWLOCK_MODULE"))
	}
	s.process = exec.Command(cmp.Or(os.Getenv("RWLOCK_SERVER"), "redis-server"), args...)
	if err := s.process.Start(); err != nil {
		s.Fatal(err)
	}
	(&place{T: s.T}).until("a server", s.open)
}

func (s *own) stop() {
	s.process.Process.Kill()
	s.process.Wait()
}

func (s *own) signal(signal syscall.Signal) { s.process.Process.Signal(signal) }
