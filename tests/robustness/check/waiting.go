package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"robustness/history"
)

// Margins, in µs. The servers share a machine with this program.
const (
	late  = 1_000_000 // a reply comes that much after BLOCK's time at the latest
	idle  = 400_000   // for so long a lock is not free while a client waits for it
	ahead = 50_000    // so much earlier asked is earlier in the queue
)

// The errors that a client must expect; any other one is a violation.
var expected = []string{
	"NOTHELD", "DEADLOCK", "UNBLOCKED", "READONLY", "LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN",
	"OOM", "MASTERDOWN", "NOREPLICAS", "MISCONF", "ERR too many waiters", "ERR a replica does not know",
}

// replies: every call is answered in time, with nothing strange, and a replica
// grants nothing.
func replies(round *history.Round) []Violation {
	var found []Violation
	for i := range round.Ops {
		op := &round.Ops[i]
		key := ""
		if len(op.Parts) > 0 {
			key = op.Parts[0].Key
		}
		waited := op.Return - op.Call
		switch {
		case op.Replica && op.Outcome != history.Failed && op.Outcome != history.Lost && op.Command != "inspect" &&
			!round.Disturbed(op.Call, op.Return):
			found = append(found, Violation{"replica-grant", key, fmt.Sprintf("%s at %d on replica %s: %s", op.Command, op.Call, op.Node, op.Outcome)})
		case op.Command == "close":
		case (op.Silent || op.Outcome != history.Lost && waited > op.Block*1000+late) && !round.Disturbed(op.Call, op.Return):
			found = append(found, Violation{"unanswered", key, fmt.Sprintf(
				"%s of %s at %d with BLOCK %d: %s after %d ms", op.Command, op.Owner, op.Call, op.Block, op.Outcome, waited/1000)})
		case op.Outcome == history.Failed && !slices.ContainsFunc(expected, func(e string) bool { return strings.HasPrefix(op.Error, e) }):
			found = append(found, Violation{"unexpected-error", key, op.Command + ": " + op.Error})
		}
	}
	return found
}

// servers: none crashed, and replicas have what their primary has.
func servers(round *history.Round) []Violation {
	var found []Violation
	for _, text := range round.Crashes {
		found = append(found, Violation{"server-crash", "", text})
	}
	for _, d := range round.Differences {
		found = append(found, Violation{"replica-differs", d.Key, fmt.Sprintf("primary %q, replica %q", d.Primary, d.Replica)})
	}
	return found
}

// stuckWaiters: a lock is not free for long while a client waits for it
// (lost-wakeup), and a client does not wait for long if nothing stands in its way
// (stuck-waiter).
func stuckWaiters(round *history.Round) []Violation {
	var found []Violation
	keys := perKey(round)
	held := map[string][]span{}
	for key, ops := range keys {
		held[key] = possible(round, key, ops)
	}
	var quiet []history.Span // times in which a grant may be late
	for _, f := range round.Faults {
		if !f.Harmless {
			quiet = append(quiet, history.Span{Start: f.Start, End: f.End})
		}
	}
	quiet = append(quiet, round.Stalls...)
	for i := range round.Ops {
		w := &round.Ops[i]
		asked := max(w.Call, w.Passed)
		if !w.Blocks || w.Outcome == history.Lost || w.Outcome == history.Failed || w.Return-asked < idle {
			continue
		}
		free, alone := slices.Clone(quiet), slices.Clone(quiet)
		for _, part := range w.Parts {
			for _, s := range held[part.Key] {
				// Its own grant does not stand in its way.
				if s.owner == w.Owner && s.from >= w.Call && s.from <= w.Return {
					continue
				}
				free = append(free, history.Span{Start: s.from, End: s.to})
				if s.owner != w.Owner && (s.write || wants(w, part.Key) == "write") {
					alone = append(alone, history.Span{Start: s.from, End: s.to})
				}
			}
			for _, o := range keys[part.Key] {
				if o == w {
					continue
				}
				if o.Reserve > 0 {
					s := history.Span{Start: o.Call, End: effective(o) + o.Reserve*1000}
					free, alone = append(free, s), append(alone, s)
				}
				if o.Blocks {
					s := history.Span{Start: o.Call, End: effective(o)}
					alone = append(alone, s)
					if len(o.Parts) > 1 {
						free = append(free, s)
					}
				}
			}
		}
		name := ""
		if gap(free, asked, w.Return) > idle && len(w.Parts) == 1 {
			name = "lost-wakeup"
		} else if gap(alone, asked, w.Return) > idle {
			name = "stuck-waiter"
		}
		if name != "" {
			found = append(found, Violation{name, w.Parts[0].Key, fmt.Sprintf(
				"%s of %s waited from %d to %d (%s)", w.Command, w.Owner, w.Call, w.Return, w.Outcome)})
		}
	}
	return found
}

// gap is the longest time in [from, to] that no span covers.
func gap(spans []history.Span, from, to int64) int64 {
	slices.SortFunc(spans, func(a, b history.Span) int { return cmp.Compare(a.Start, b.Start) })
	longest := int64(0)
	for _, s := range spans {
		if s.Start >= to {
			break
		}
		longest = max(longest, s.Start-from)
		from = max(from, s.End)
	}
	return max(longest, to-from)
}

// order: under the policy fifo nobody passes a client that asked before.
func order(round *history.Round) []Violation {
	for _, f := range round.Faults {
		if f.Settings {
			return nil
		}
	}
	var found []Violation
	for key, ops := range perKey(round) {
		held := possible(round, key, ops)
		for _, first := range ops {
			if !first.Blocks || first.Outcome == history.Lost || first.Return-first.Call < ahead {
				continue
			}
			for _, second := range ops {
				if second.Call < max(first.Call, first.Passed)+ahead || second.Return+2*ahead > first.Return {
					continue
				}
				kind := wants(second, key)
				if second.Outcome != history.OK || kind == "" || second.Owner == first.Owner ||
					second.Command == "upgrade" || second.Command == "downgrade" ||
					first.Command == "mlock" && kind == "read" ||
					round.Disturbed(first.Call, first.Return) || !arrived(round, first, second.Call) ||
					mayBeBack(round, ops, second.Owner, key, second.Call) ||
					slices.ContainsFunc(ops, func(o *history.Op) bool { return o.Reserve > 0 && o.Owner == second.Owner }) ||
					slices.ContainsFunc(held, func(s span) bool {
						return s.owner == second.Owner && s.from < second.Call && s.to >= second.Call
					}) {
					continue
				}
				found = append(found, Violation{"order", key, fmt.Sprintf(
					"%s of %s waited from %d to %d, and %s of %s was granted from %d to %d", first.Command, first.Owner, first.Call, first.Return,
					second.Command, second.Owner, second.Call, second.Return)})
			}
		}
	}
	return found
}

// mayBeBack says whether the owner may hold the lock at that time because a fault lost
// its release: it took the lock before, and nothing shows that it had none since.
func mayBeBack(round *history.Round, ops []*history.Op, owner, key string, at int64) bool {
	return slices.ContainsFunc(round.Faults, func(f history.Fault) bool {
		if !f.Lossy || f.Start > at {
			return false
		}
		took, shown := false, false
		for _, o := range ops {
			if o.Owner != owner {
				continue
			}
			happened := o.Outcome == history.OK || o.Outcome == history.Lost
			took = took || wants(o, key) != "" && happened && o.Call < f.Struck
			whole := partOf(o, key).Kind == "" || partOf(o, key).Kind == "all"
			none := o.Command == "unlock" && (o.Outcome == history.NotHeld && whole || o.Outcome == history.OK && o.Answer == 1) ||
				o.Command == "renew" && o.Outcome == history.NotHeld ||
				o.Command == "rlock" && o.Outcome == history.Refused
			shown = shown || none && o.Call > f.End && o.Return < at
		}
		return took && !shown
	})
}

// arrived says whether the server had surely read the request by that time: it
// answered another one that was sent later.
func arrived(round *history.Round, op *history.Op, by int64) bool {
	for i := range round.Ops {
		o := &round.Ops[i]
		if o.Call > max(op.Call, op.Passed) && o.Return < by && o.Outcome != history.Lost && o.Node == op.Node && o.Command != "close" {
			return true
		}
	}
	return false
}
