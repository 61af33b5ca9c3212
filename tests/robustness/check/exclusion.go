package check

import (
	"cmp"
	"fmt"
	"slices"

	"robustness/history"
)

// exclusion: while an owner surely writes, no other surely holds the lock.
func exclusion(round *history.Round) []Violation {
	var found []Violation
	for key, ops := range perKey(round) {
		spans := certain(round, key, ops)
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for i, a := range spans {
			for _, b := range spans[i+1:] {
				if b.from >= a.to {
					break
				}
				if a.owner != b.owner && (a.write || b.write) {
					found = append(found, Violation{"exclusion", key, fmt.Sprintf(
						"%s has it from %d to %d (%s), %s from %d to %d (%s)", a.owner, a.from, a.to, a.op.Command, b.owner, b.from, b.to, b.op.Command)})
				}
			}
		}
	}
	return found
}

// lostHolds: a hold that surely lives is not "not held"; who holds nothing has
// nothing to give back. Where MLOCK took or left it, that was half a set.
func lostHolds(round *history.Round) []Violation {
	var found []Violation
	for key, ops := range perKey(round) {
		for _, s := range certain(round, key, ops) {
			for _, op := range ops {
				if op.Owner != s.owner || !denies(op, key, s.write) {
					continue
				}
				covered := op.Call >= s.from && op.Return < s.to || op == s.cut && op.Return < min(s.due, s.next) && s.to == op.Call
				if !covered {
					continue
				}
				name := "lost-hold"
				if s.op.Command == "mlock" {
					name = "half-a-set"
				}
				found = append(found, Violation{name, key, fmt.Sprintf(
					"%s took it by %s at %d with a lease of %d ms, and at %d %s says that it has none", s.owner, s.op.Command, s.op.Return, s.op.Lease, op.Call, op.Command)})
			}
		}
		found = append(found, ghosts(round, key, ops)...)
	}
	return found
}

// denies says whether the reply means that the owner has no such hold.
func denies(op *history.Op, key string, write bool) bool {
	part := partOf(op, key)
	if part.Kind == "read" && write || part.Kind == "write" && !write {
		return false
	}
	switch op.Command {
	case "unlock", "renew":
		return op.Outcome == history.NotHeld
	case "munlock":
		return op.Outcome == history.OK && part.Answer == -1
	case "mrenew":
		return op.Outcome == history.OK && part.Answer == 0
	}
	return false
}

// ghosts finds holds that nobody took.
func ghosts(round *history.Round, key string, ops []*history.Op) []Violation {
	var found []Violation
	spans := possible(round, key, ops)
	for _, op := range ops {
		for _, owner := range shown(op, key) {
			if slices.ContainsFunc(spans, func(s span) bool {
				return (s.owner == owner || s.owner == "") && s.from <= op.Return && s.to+round.Error() >= op.Call
			}) {
				continue
			}
			name, last := "ghost-hold", (*history.Op)(nil)
			for _, o := range ops {
				if o.Owner == owner && o.Return < op.Call && wants(o, key) != "" {
					last = o
				}
			}
			if last != nil && last.Command == "mlock" && last.Outcome == history.Refused {
				name = "half-a-set"
			}
			if op.Command == "renew" || op.Command == "mrenew" {
				name = "revived-hold"
			}
			found = append(found, Violation{name, key, fmt.Sprintf("%s at %d shows a hold of %s, which has none", op.Command, op.Call, owner)})
		}
	}
	return found
}

// shown are the owners that the reply says have a hold.
func shown(op *history.Op, key string) []string {
	part := partOf(op, key)
	switch {
	case op.Outcome != history.OK:
	case op.Command == "inspect":
		var owners []string
		for _, h := range op.View.Holders {
			owners = append(owners, h.Owner)
		}
		return owners
	case op.Command == "munlock" && part.Answer >= 0 && part.Kind != "all", op.Command == "mrenew" && part.Answer == 1, op.Command == "renew",
		op.Command == "unlock" && part.Kind != "all":
		return []string{op.Owner}
	}
	return nil
}

// tokens: they increase in the order of grants, and two owners never get the same.
func tokens(round *history.Round) []Violation {
	var found []Violation
	for key, ops := range perKey(round) {
		var fenced []*history.Op
		for _, op := range ops {
			// Around an election that may lose something two servers hand out tokens.
			lossy := slices.ContainsFunc(round.Faults, func(f history.Fault) bool {
				return f.Lossy && op.Call <= f.End && op.Return >= f.Start
			})
			if partOf(op, key).Token != 0 && !lossy {
				fenced = append(fenced, op)
			}
		}
		for _, a := range fenced {
			for _, b := range fenced {
				first, second := partOf(a, key).Token, partOf(b, key).Token
				wrong := a.Return < b.Call && first > second || first == second && a.Owner != b.Owner
				if a != b && wrong {
					found = append(found, Violation{"token-order", key, fmt.Sprintf(
						"%s got %d at %d, then %s got %d at %d", a.Owner, first, a.Return, b.Owner, second, b.Return)})
				}
			}
		}
	}
	return found
}
