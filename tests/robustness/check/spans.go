package check

import (
	"cmp"
	"slices"

	"robustness/history"
)

// span is a time in which an owner held a lock: surely, or possibly.
type span struct {
	owner    string
	from, to int64
	write    bool
	op       *history.Op // that took it
	due      int64       // when its lease would have ended at the earliest
	cut      *history.Op // that may have ended it before
	next     int64       // when another call may have ended it, too
}

// perKey has the calls of each lock, by the time of the call.
func perKey(round *history.Round) map[string][]*history.Op {
	keys := map[string][]*history.Op{}
	for i := range round.Ops {
		op := &round.Ops[i]
		if op.Replica {
			continue
		}
		for _, p := range op.Parts {
			keys[p.Key] = append(keys[p.Key], op)
		}
	}
	for _, ops := range keys {
		slices.SortFunc(ops, func(a, b *history.Op) int { return cmp.Compare(a.Call, b.Call) })
	}
	return keys
}

func partOf(op *history.Op, key string) history.Part {
	for _, p := range op.Parts {
		if p.Key == key {
			return p
		}
	}
	return history.Part{}
}

// wants is the kind of hold that the call asks for on the lock: read, write or "".
func wants(op *history.Op, key string) string {
	switch op.Command {
	case "rlock", "downgrade":
		return "read"
	case "wlock", "upgrade":
		return "write"
	case "mlock":
		return partOf(op, key).Kind
	}
	return ""
}

// releases says whether the call may end a hold of its own owner on the lock.
func releases(op *history.Op) bool {
	return op.Command == "unlock" || op.Command == "munlock" || op.Command == "downgrade"
}

// clears says whether the call ends all holds on the lock.
func clears(op *history.Op) bool {
	return op.Command == "force" || op.Command == "flushall" || op.Command == "del"
}

// certain returns when which owner surely held the lock: from the reply, until
// the lease ends that began at the call, or until something may have ended it.
func certain(round *history.Round, key string, ops []*history.Op) []span {
	var spans []span
	for _, op := range ops {
		kind := wants(op, key)
		if kind == "" || op.Outcome != history.OK {
			continue
		}
		s := span{owner: op.Owner, from: op.Return, write: kind == "write", op: op}
		s.due = op.Call + op.Lease*1000 - round.Error()
		if op.Session && !op.Once {
			s.due = sure(round, op) - round.Error()
		}
		end := history.Never
		s.next = end
		for i := range round.Ops {
			o := &round.Ops[i]
			// What came before, or cannot touch this lock, does not matter.
			if o == op || effective(o) < op.Call || o.Outcome == history.Failed {
				continue
			}
			ends := o.Command == "flushall" ||
				o.Command == "close" && (o.Conn == op.Conn || moves(ops, op, o.Conn)) ||
				(clears(o) || o.Owner == op.Owner && releases(o)) && slices.ContainsFunc(o.Parts, func(p history.Part) bool { return p.Key == key })
			switch {
			case !ends:
			case o.Call < end:
				s.next, end, s.cut = end, o.Call, o
			default:
				s.next = min(s.next, o.Call)
			}
		}
		for _, o := range ops {
			renews := o.Command == "renew" || o.Command == "mrenew" && partOf(o, key).Answer == 1
			if renews && o.Owner == op.Owner && o.Outcome == history.OK && o.Call >= op.Return && o.Return < min(s.due, end) {
				s.due = max(s.due, o.Call+o.Lease*1000-round.Error())
			}
		}
		for _, f := range round.Faults {
			if (f.Lossy || f.Moves) && f.End > op.Call {
				end = min(end, f.Start)
			}
		}
		s.to = min(s.due, end)
		if s.to > s.from {
			spans = append(spans, s)
		}
	}
	return spans
}

// moves says whether the owner may have bound the hold to this connection later, by SESSION.
func moves(ops []*history.Op, op *history.Op, conn int) bool {
	return slices.ContainsFunc(ops, func(o *history.Op) bool {
		return o.Owner == op.Owner && o.Session && o.Conn == conn && effective(o) >= op.Call
	})
}

// hindered says whether the reply of a request was lost, but somebody surely stood
// in its way all the time: it took nothing.
func hindered(sure []span, op *history.Op, key string) bool {
	kind := wants(op, key)
	return op.Outcome == history.Lost && kind != "" && slices.ContainsFunc(sure, func(s span) bool {
		return s.owner != op.Owner && (s.write || kind == "write") && s.from <= op.Call && s.to >= effective(op)
	})
}

// possible returns when which owner may have held the lock.
func possible(round *history.Round, key string, ops []*history.Op) []span {
	owners := map[string][]*history.Op{}
	var spans []span
	sure := certain(round, key, ops)
	for _, op := range ops {
		if hindered(sure, op, key) {
			continue
		}
		if op.Owner != "" {
			owners[op.Owner] = append(owners[op.Owner], op)
		}
	}
	for owner, mine := range owners {
		for i := range round.Ops {
			o := &round.Ops[i]
			if o.Command == "close" && o.Owner == owner {
				mine = append(mine, o)
			}
		}
		slices.SortStableFunc(mine, func(a, b *history.Op) int { return cmp.Compare(a.Call, b.Call) })
		spans = append(spans, holding(round, owner, key, mine)...)
	}
	for _, f := range round.Faults {
		if f.Lossy {
			spans = append(spans, span{owner: "", from: f.Start, to: lastEnd(round, ops, f.End), write: true})
		}
	}
	return spans
}

// prompt is how long, in µs, the reply of a grant takes at most when nothing is
// disturbed.
const prompt = 250_000

// holding follows one owner: at most how many holds it has, and until when.
func holding(round *history.Round, owner, key string, ops []*history.Op) []span {
	var spans []span
	now := span{owner: owner, from: -1}
	holds, lease, bound := 0, int64(0), map[int]bool{}
	end := func(at int64) {
		if now.from >= 0 {
			if len(bound) > 0 { // the server renewed it
				now.to = at
			}
			now.to = min(now.to, at)
			spans = append(spans, now)
		}
		now, holds, lease = span{owner: owner, from: -1}, 0, 0
		clear(bound)
	}
	for _, op := range ops {
		if now.from >= 0 && len(bound) == 0 && now.to < op.Call {
			end(now.to)
		}
		if op.Outcome == history.Failed {
			continue
		}
		at, part := effective(op), partOf(op, key)
		answer := op.Answer
		if op.Command == "munlock" {
			answer = part.Answer
		}
		happened := op.Outcome == history.OK || op.Outcome == history.Lost
		switch {
		case wants(op, key) != "" && happened:
			if now.from < 0 {
				now.from = op.Call
				// A waiter hears of its grant at once.
				if heard := op.Return - prompt; op.Blocks && op.Outcome == history.OK && !round.Disturbed(heard, op.Return) {
					now.from = max(now.from, heard)
				}
			}
			now.write = now.write || wants(op, key) == "write"
			holds++
			lease = max(lease, op.Lease*1000)
			now.to = max(now.to, at+op.Lease*1000+round.Error())
			if op.Session {
				bound[op.Conn] = true
			}
			if op.Outcome == history.Lost {
				holds++
			}
		case (op.Command == "renew" || op.Command == "mrenew") && happened && now.from >= 0:
			lease = max(lease, op.Lease*1000)
			now.to = max(now.to, at+op.Lease*1000+round.Error())
		case op.Command == "renew" && op.Outcome == history.NotHeld:
			end(at)
		case op.Command == "unlock" || op.Command == "munlock":
			if op.Outcome == history.Lost {
				continue
			}
			none := op.Outcome == history.NotHeld || answer == -1
			whole := part.Kind == "" || part.Kind == "all"
			holds--
			if none && whole || !none && (answer == 1 || part.Kind == "all" || holds <= 0) {
				end(at)
			} else if none {
				holds++
			}
		case op.Command == "close" && bound[op.Conn]:
			delete(bound, op.Conn)
			now.to = max(now.to, at+lease+round.Error())
		}
	}
	end(history.Never)
	return spans
}
