package check

import (
	"slices"
	"testing"
	"time"

	"robustness/history"
)

// Small histories, written by hand: what is legal must pass, and each way to break
// a lock must be found, under its name. Times are in ms here.

const ms = int64(1000)

func op(owner, command string, call, back int64, change func(*history.Op)) history.Op {
	o := history.Op{
		Owner: owner, Command: command, Node: "node1", Conn: int(owner[0]), Client: int(owner[0]),
		Parts: []history.Part{{Key: "k"}}, Call: call * ms, Return: back * ms, Outcome: history.OK,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func lease(n int64) func(*history.Op) { return func(o *history.Op) { o.Lease = n } }

func fenced(n, token int64) func(*history.Op) {
	return func(o *history.Op) { o.Lease, o.Fence, o.Parts[0].Token = n, true, token }
}

func waits(n, timeout int64) func(*history.Op) {
	return func(o *history.Op) { o.Lease, o.Blocks, o.Block = n, true, timeout }
}

func refused(n, answer int64) func(*history.Op) {
	return func(o *history.Op) { o.Lease, o.Outcome, o.Answer = n, history.Refused, answer }
}

func gone(o *history.Op)  { o.Outcome = history.NotHeld }
func freed(o *history.Op) { o.Answer = 1 }
func bound(n int64) func(*history.Op) {
	return func(o *history.Op) { o.Lease, o.Session = n, true }
}

// on is for a connection of the owner other than its first.
func on(conn int, change func(*history.Op)) func(*history.Op) {
	return func(o *history.Op) {
		change(o)
		o.Conn = conn
	}
}

func once(n int64) func(*history.Op) {
	return func(o *history.Op) { o.Lease, o.Session, o.Once = n, true, true }
}

func written(holds int, ttl int64) func(*history.Op) {
	return shows(history.Holder{Owner: "a", Kind: "write", Holds: holds, TTL: ttl})
}

func shows(holders ...history.Holder) func(*history.Op) {
	return func(o *history.Op) { o.View = &history.View{Holders: holders} }
}

func joint(n int64, outcome string, keys ...string) func(*history.Op) {
	return func(o *history.Op) {
		o.Lease, o.Outcome, o.Parts = n, outcome, nil
		for _, key := range keys {
			o.Parts = append(o.Parts, history.Part{Key: key, Kind: "write"})
		}
	}
}

func names(round *history.Round) []string {
	round.ClockError = 5 * ms
	var found []string
	for _, v := range Round(round, 10*time.Second).Violations {
		found = append(found, v.Name)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func closing(owner string, call int64) history.Op {
	return op(owner, "close", call, call, func(o *history.Op) {
		o.Parts, o.Until, o.Chosen = nil, (call+150)*ms, true
	})
}

func TestWhatIsLegal(t *testing.T) {
	killed := history.Fault{Name: "kill", Start: 100 * ms, Struck: 105 * ms, Undone: 300 * ms, End: 400 * ms, Killed: true, SessionsEnd: true}
	lossy := killed
	lossy.Lossy = true
	moved := history.Fault{Name: "move-slot", Start: 10 * ms, Struck: 20 * ms, Undone: 20 * ms, End: 30 * ms, Moves: true}
	leaves := closing("a", 60)
	leaves.Conn = 2
	cases := map[string]history.Round{
		"sessions end where the slot leaves": {Faults: []history.Fault{moved}, Ops: []history.Op{
			op("a", "wlock", 0, 1, bound(1600)), op("a", "wlock", 40, 41, on(2, bound(1100))),
			op("a", "wlock", 42, 43, on(3, once(1200))), leaves,
			op("a", "inspect", 80, 81, written(1, 1520)),
		}},
		"a session moves to a connection that closes": {Ops: []history.Op{
			op("a", "rlock", 0, 1, bound(2000)), op("a", "rlock", 50, 51, on(2, once(1700))), leaves,
			op("b", "wlock", 62, 63, lease(500)),
		}},
		"writes keep the end that a session gave them": {Ops: []history.Op{
			op("a", "wlock", 0, 1, bound(2000)), op("a", "wlock", 10, 11, on(2, bound(1000))),
			op("a", "wlock", 20, 21, on(2, lease(500))), op("a", "unlock", 30, 31, nil), leaves,
			op("a", "inspect", 300, 301, written(1, 1725)),
		}},
		"a grant whose reply was lost is taken back": {Ops: []history.Op{
			op("a", "rlock", 0, 50, func(o *history.Op) { o.Lease, o.Outcome, o.Until = 500, history.Lost, 200*ms }),
			op("b", "inspect", 20, 21, shows(history.Holder{Owner: "a", Kind: "read", Holds: 1, TTL: 490})),
			op("b", "wlock", 210, 211, lease(100)),
		}},
		"a session of which a crash let nothing be known": {Faults: []history.Fault{lossy}, Ops: []history.Op{
			op("a", "wlock", 390, 391, on(2, bound(2000))), op("a", "downgrade", 410, 411, on(2, lease(400))),
			func() history.Op { c := closing("a", 420); c.Conn = 2; return c }(),
			op("b", "wlock", 425, 426, lease(100)),
		}},
		"a release that a crash lost": {Faults: []history.Fault{lossy}, Ops: []history.Op{
			op("a", "rlock", 0, 1, lease(5000)), op("a", "unlock", 50, 51, freed),
			op("a", "rlock", 410, 411, lease(5000)), op("b", "wlock", 420, 900, waits(100, 2000)),
			op("c", "inspect", 422, 423, shows(history.Holder{Owner: "a", Kind: "read", Holds: 2, TTL: 4990})),
			op("a", "unlock", 430, 431, nil), op("a", "rlock", 500, 501, lease(300)),
			op("a", "unlock", 510, 511, nil), op("a", "unlock", 800, 899, freed),
		}},
		"a short session on a busy machine": {Ops: []history.Op{
			op("a", "wlock", 0, 1, bound(40)), op("b", "wlock", 100, 101, lease(100)),
		}},
		"one after the other": {Ops: []history.Op{
			op("a", "wlock", 0, 1, fenced(500, 10)), op("b", "wlock", 2, 3, refused(500, 499)),
			op("a", "unlock", 10, 11, freed), op("b", "wlock", 12, 13, fenced(500, 11)),
		}},
		"readers beside each other": {Ops: []history.Op{
			op("a", "rlock", 0, 1, lease(500)), op("b", "rlock", 2, 3, lease(500)),
			op("a", "unlock", 10, 11, nil), op("b", "unlock", 12, 13, freed),
		}},
		"a waiter gets it at the release": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(500)), op("b", "wlock", 5, 101, waits(500, 800)), op("a", "unlock", 100, 101, freed),
		}},
		"a lease lapses": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(50)), op("b", "wlock", 60, 61, lease(50)), op("a", "renew", 62, 63, gone),
		}},
		"just at the end of a lease both can be": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(50)), op("a", "renew", 51, 52, lease(50)), op("a", "unlock", 60, 61, freed),
		}},
		"a lost request that was granted": {Ops: []history.Op{
			op("a", "wlock", 0, 1, func(o *history.Op) { o.Lease, o.Outcome, o.Until = 500, history.Lost, 100*ms }),
			op("b", "wlock", 20, 21, refused(100, 480)),
		}},
		"and one that was not": {Ops: []history.Op{
			op("a", "wlock", 0, 1, func(o *history.Op) { o.Lease, o.Outcome, o.Until = 500, history.Lost, 100*ms }),
			op("b", "wlock", 20, 21, lease(100)),
		}},
		"a session ends with its connection": {Ops: []history.Op{
			op("a", "wlock", 0, 1, bound(1000)), closing("a", 50), op("b", "wlock", 60, 61, refused(100, 1000)),
			op("b", "wlock", 80, 81, lease(100)),
		}},
		"a plain hold beside a session stays": {Ops: []history.Op{
			op("a", "rlock", 0, 1, bound(1000)), op("a", "rlock", 2, 3, lease(900)), closing("a", 50),
			op("b", "inspect", 300, 301, shows(history.Holder{Owner: "a", Kind: "read", Holds: 1, TTL: 601})),
		}},
		"up and down": {Ops: []history.Op{
			op("a", "rlock", 0, 1, lease(500)), op("a", "upgrade", 2, 3, lease(500)), op("b", "rlock", 4, 5, refused(50, 498)),
			op("a", "downgrade", 6, 7, lease(300)), op("b", "rlock", 8, 9, lease(500)), op("a", "unlock", 10, 11, nil),
		}},
		"AOF always keeps what was acknowledged": {Faults: []history.Fault{killed}, Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(2000)), op("b", "wlock", 450, 451, refused(50, 1550)), op("a", "unlock", 500, 501, freed),
		}},
		"a snapshot may lose it": {Faults: []history.Fault{lossy}, Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(2000)), op("b", "wlock", 450, 451, lease(50)), op("a", "unlock", 500, 501, gone),
		}},
		"or bring it back": {Faults: []history.Fault{lossy}, Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(2000)), op("a", "unlock", 50, 51, freed), op("b", "wlock", 450, 451, refused(50, 1500)),
		}},
		"who left a queue stood in it": {Ops: []history.Op{
			op("a", "rlock", 0, 1, lease(500)),
			op("b", "wlock", 10, 50, func(o *history.Op) {
				waits(500, 1500)(o)
				o.Outcome, o.Until = history.Lost, 200*ms
			}),
			op("c", "rlock", 20, 21, refused(500, 480)),
		}},
		"a session is renewed": {Ops: []history.Op{
			op("a", "rlock", 0, 1, bound(300)), op("a", "unlock", 1000, 1001, freed),
		}},
		"a session that was granted as its client left": {Ops: []history.Op{
			op("a", "rlock", 0, 1, func(o *history.Op) { bound(900)(o); o.Outcome, o.Until = history.Lost, 150*ms }),
			op("b", "inspect", 10, 11, shows(history.Holder{Owner: "a", Kind: "read", Holds: 1, TTL: 890})),
			op("b", "wlock", 30, 31, lease(50)),
		}},
		"two locks together": {Ops: []history.Op{
			op("a", "mlock", 0, 1, joint(500, history.OK, "k", "l")), op("b", "mlock", 2, 3, joint(500, history.Refused, "k", "m")),
			op("b", "wlock", 4, 5, func(o *history.Op) { o.Lease, o.Parts[0].Key = 50, "m" }),
		}},
	}
	for name, round := range cases {
		if found := names(&round); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestWhatIsNot(t *testing.T) {
	killed := history.Fault{Name: "kill", Start: 100 * ms, Struck: 105 * ms, Undone: 300 * ms, End: 400 * ms, Killed: true, SessionsEnd: true}
	lossy := killed
	lossy.Lossy = true
	cases := map[string]history.Round{
		"exclusion": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(500)), op("b", "wlock", 10, 11, lease(500)),
		}},
		"exclusion ": {Ops: []history.Op{ // a reader beside a writer that lapses later
			op("a", "rlock", 0, 1, lease(500)), op("b", "wlock", 10, 11, lease(5)), op("a", "unlock", 100, 101, freed),
		}},
		"token-order": {Ops: []history.Op{
			op("a", "wlock", 0, 1, fenced(500, 10)), op("a", "unlock", 2, 3, freed), op("b", "wlock", 4, 5, fenced(500, 10)),
		}},
		"token-order ": {Ops: []history.Op{ // the same owner, but another tenure
			op("a", "wlock", 0, 1, fenced(500, 10)), op("a", "unlock", 2, 3, freed), op("a", "wlock", 4, 5, fenced(500, 10)),
		}},
		"token-order  ": {Faults: []history.Fault{lossy}, Ops: []history.Op{ // repeated after a restart
			op("a", "wlock", 0, 1, fenced(50, 10)), op("b", "wlock", 500, 501, fenced(500, 10)),
		}},
		"ghost-hold": {Ops: []history.Op{ // a lapsed reader counts
			op("a", "rlock", 0, 1, lease(50)), op("b", "wlock", 100, 101, refused(500, 300)),
		}},
		"lease-extended": {Faults: []history.Fault{killed}, Ops: []history.Op{ // a relative lease in the AOF
			op("a", "wlock", 0, 1, lease(1000)), op("b", "wlock", 450, 451, refused(50, 850)),
		}},
		"lease-extended ": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(100)),
			op("b", "inspect", 50, 51, shows(history.Holder{Owner: "a", Kind: "write", Holds: 1, TTL: 99})),
		}},
		"revived-hold": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(50)), op("a", "renew", 70, 71, lease(500)), op("a", "unlock", 80, 81, freed),
		}},
		"lost-hold": {Faults: []history.Fault{killed}, Ops: []history.Op{ // acknowledged, AOF always, and gone
			op("a", "wlock", 0, 1, lease(2000)), op("a", "unlock", 500, 501, gone),
		}},
		"lost-hold ": {Ops: []history.Op{ // a binding ends another hold
			op("a", "rlock", 0, 1, bound(1000)), op("a", "unlock", 2, 3, freed), op("a", "rlock", 4, 5, lease(900)),
			closing("a", 50), op("a", "unlock", 300, 301, gone),
		}},
		"lost-hold  ": {Ops: []history.Op{ // a session released twice
			op("a", "rlock", 0, 1, bound(1000)), op("b", "rlock", 4, 5, lease(900)),
			closing("a", 50), op("b", "renew", 300, 301, gone),
		}},
		"half-a-set": {Ops: []history.Op{
			op("a", "mlock", 0, 1, joint(500, history.OK, "k", "l")), op("a", "unlock", 10, 11, gone),
		}},
		"half-a-set ": {Ops: []history.Op{
			op("b", "wlock", 0, 1, func(o *history.Op) { o.Lease, o.Parts[0].Key = 500, "l" }),
			op("a", "mlock", 2, 3, joint(500, history.Refused, "k", "l")),
			op("c", "inspect", 10, 11, shows(history.Holder{Owner: "a", Kind: "write", Holds: 1, TTL: 480})),
		}},
		"lost-wakeup": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(2000)), op("a", "unlock", 100, 101, freed),
			op("b", "wlock", 50, 900, waits(500, 1500)), op("c", "wlock", 60, 890, waits(500, 1500)),
		}},
		"stuck-waiter": {Ops: []history.Op{ // the writer ahead of it left
			op("a", "rlock", 0, 1, lease(2000)),
			op("b", "wlock", 10, 50, func(o *history.Op) {
				waits(500, 1500)(o)
				o.Outcome, o.Until = history.Lost, 200*ms
			}),
			op("c", "rlock", 20, 900, waits(500, 1500)), op("a", "unlock", 1000, 1001, nil),
		}},
		"order": {Ops: []history.Op{
			op("a", "wlock", 0, 1, lease(2000)), op("b", "wlock", 10, 900, waits(50, 1500)), op("d", "inspect", 30, 31, shows(history.Holder{Owner: "a", Kind: "write", Holds: 1, TTL: 1970})),
			op("c", "wlock", 100, 701, waits(50, 1500)), op("a", "unlock", 700, 701, freed), op("c", "unlock", 720, 721, freed),
		}},
		"replica-grant": {Ops: []history.Op{
			op("a", "wlock", 0, 1, func(o *history.Op) { o.Lease, o.Replica = 500, true }),
		}},
		"unanswered": {Ops: []history.Op{
			op("a", "wlock", 0, 2500, func(o *history.Op) { o.Lease, o.Outcome, o.Silent, o.Until = 50, history.Lost, true, 2600*ms }),
		}},
		"unexpected-error": {Ops: []history.Op{
			op("a", "wlock", 0, 1, func(o *history.Op) { o.Lease, o.Outcome, o.Error = 50, history.Failed, "ERR internal error: x" }),
		}},
	}
	for name, round := range cases {
		want := ""
		for _, letter := range name {
			if letter != ' ' {
				want += string(letter)
			}
		}
		if found := names(&round); !slices.Contains(found, want) {
			t.Errorf("%q: found %v", name, found)
		}
	}
}
