package check

import (
	"robustness/history"
)

// Model is the sequential model of one lock. See README.md for how it treats time.
type Model struct {
	// Error bounds, in µs, how far the ends of leases are from what the clients'
	// clock says.
	Error int64
	// Relaxed is the name of a rule that is not enforced. It serves to name what
	// is wrong with a history: it becomes legal without the rule that was broken.
	Relaxed string
}

// The rules that a history can break, in the order in which they are tried.
var rules = []string{
	"lease-extended", "revived-hold", "ghost-hold", "lost-hold", "release-reply",
	"unheld-release", "token-order", "exclusion",
}

// anything is an answer that nobody got.
const anything = int64(-1 << 40)

// step is one call as one lock sees it.
type step struct {
	what    string // read, write, upgrade, downgrade, renew, unlock, force, inspect, clear, close, crash
	owner   string
	kind    string // of unlock
	conn    int
	lease   int64 // µs
	session bool
	once    bool
	outcome string
	answer  int64 // ms of a refusal, 1 or 0 of a release
	token   int64
	at      moment
	// excused: another waiter may have stood in the way.
	excused bool
	// reserved: a reservation may stand, so the answer may be its end.
	reserved bool
	// sure: until then a session hold is renewed if its connection is open.
	sure  int64
	maybe bool
	view  *history.View
	text  string
}

// take returns the states that the lock can be in after the step; none if the
// step cannot have gone like that.
func (m *Model) take(s *lock, in *step) []*lock {
	at := moment{max(s.now, in.at.from), in.at.to}
	if at.from > at.to {
		return nil
	}
	s = s.clone()
	// What has surely lapsed is gone.
	live := s.holds[:0]
	for _, h := range s.holds {
		if m.canLive(h, at) {
			live = append(live, h)
		}
	}
	s.holds = live
	if in.outcome == history.Lost {
		done := *in
		done.outcome, done.answer, done.token = history.OK, anything, 0
		s.now = at.from
		return append(m.act(s.clone(), &done, at), s)
	}
	return m.act(s, in, at)
}

func (m *Model) act(s *lock, in *step, at moment) []*lock {
	var after []branch
	switch in.what {
	case "read":
		after = m.read(s, in, at)
	case "write", "upgrade":
		after = m.write(s, in, at)
	case "downgrade":
		after = m.downgrade(s, in, at)
	case "renew":
		after = m.renew(s, in, at)
	case "unlock":
		after = m.unlock(s, in, at)
	case "force":
		after = m.force(s, in, at)
	case "inspect":
		after = m.inspect(s, in, at)
	case "clear":
		s.empty(at)
		after = []branch{{s, at}}
	case "close":
		if in.maybe {
			after = append(after, branch{s.clone(), at})
		}
		for i := len(s.holds) - 1; i >= 0; i-- {
			if s.holds[i].conn == in.conn {
				s.remove(i, at)
			}
		}
		after = append(after, branch{s, at})
	case "crash":
		for i := range s.holds {
			if h := &s.holds[i]; h.conn != 0 {
				h.conn, h.hi = 0, max(h.plain, at.to+h.lease)
				h.plain = h.hi
				h.lo = min(h.lo, h.hi)
			}
		}
		for i := range s.holds {
			h := s.holds[i]
			if h.write {
				s.unbind(h.owner, at, h.lease, 0)
			}
		}
		after = []branch{{s, at}}
	}
	states := make([]*lock, 0, len(after))
	for _, b := range after {
		if b.at.from <= b.at.to {
			b.s.now = b.at.from
			states = append(states, b.s)
		}
	}
	return states
}

// empty ends all holds.
func (s *lock) empty(at moment) {
	s.holds = nil
	if at.from > s.firm {
		s.fog = 0
	}
}

// ends returns the two ends of a lease that begins at the moment.
func (in *step) ends(at moment) (lo, hi int64, conn int) {
	if in.session && in.outcome == history.OK && in.answer != anything {
		return max(in.sure, at.from+in.lease), history.Never, in.conn
	}
	if in.session || in.answer == anything {
		// The reply was lost: the server gives the hold back as soon as it notices that.
		return at.from, at.to + in.lease, 0
	}
	return at.from + in.lease, at.to + in.lease, 0
}

func others(owner string) func(hold) bool { return func(h hold) bool { return h.owner != owner } }

// exclude lets all holds lapse that a grant excludes.
func (m *Model) exclude(s *lock, at *moment, which func(hold) bool) bool {
	if m.Relaxed == "exclusion" {
		return true
	}
	return m.lapse(s, at, which)
}

func (m *Model) read(s *lock, in *step, at moment) []branch {
	if in.outcome != history.OK {
		return m.refuse(s, in, at, func(h hold) bool { return h.owner != in.owner && h.write })
	}
	// A foreign write hold that has lapsed took its owner's read holds with it.
	writer := s.find(func(h hold) bool { return h.owner != in.owner && h.write })
	if writer >= 0 {
		gone := s.holds[writer].owner
		if !m.exclude(s, &at, func(h hold) bool { return h.owner == gone }) {
			return nil
		}
	}
	branches := m.settle(s, in.owner, at)
	for i := range branches {
		b := &branches[i]
		m.add(b.s, in, b.at, false)
	}
	return branches
}

// add gives the owner a hold, or with ONCE lengthens the one that it has.
func (m *Model) add(s *lock, in *step, at moment, write bool) {
	lo, hi, conn := in.ends(at)
	last := s.last(in.owner, write)
	mine := s.find(func(h hold) bool { return h.owner == in.owner && h.write == write && h.conn == in.conn })
	if in.session && mine >= 0 {
		last = mine // bound to this connection already: that is the one that is meant
	}
	if in.once && last >= 0 {
		h := &s.holds[last]
		h.lo, h.hi, h.lease = max(h.lo, at.from+in.lease), max(h.hi, at.to+in.lease), max(h.lease, in.lease)
		h.plain = max(h.plain, at.to+in.lease)
		if conn != 0 && mine < 0 {
			// Write holds have no numbers of their own: a plain one is bound first.
			if plain := s.find(func(x hold) bool { return x.owner == in.owner && x.write && x.conn == 0 }); write && plain >= 0 {
				h = &s.holds[plain]
			}
			h.conn, h.lo, h.hi = conn, max(h.lo, lo), hi
		}
	} else {
		s.holds = append(s.holds, hold{in.owner, write, conn, lo, hi, in.lease, at.to + in.lease})
		// One order for all states: by owner, and within an owner by age.
		for i := len(s.holds) - 1; i > 0 && s.holds[i-1].owner > s.holds[i].owner; i-- {
			s.holds[i-1], s.holds[i] = s.holds[i], s.holds[i-1]
		}
	}
	s.bind(in.owner)
}

func (m *Model) write(s *lock, in *step, at moment) []branch {
	switch in.outcome {
	case history.Refused:
		return m.refuse(s, in, at, func(h hold) bool { return h.owner != in.owner || (in.what == "write" && !h.write) })
	case history.NotHeld:
		return m.notHeld(s, in, at, func(h hold) bool { return !h.write })
	}
	if !m.exclude(s, &at, others(in.owner)) {
		return nil
	}
	var after []branch
	for _, b := range m.settle(s, in.owner, at) {
		fogged := m.fogged(b.s, in.owner, b.at)
		reads, writes := b.s.count(in.owner, false), b.s.count(in.owner, true)
		switch {
		case in.what == "upgrade" && reads == 0 && !fogged:
			continue
		case in.what == "write" && reads > 0 && writes == 0 && !fogged:
			continue
		}
		if in.token != 0 {
			again := writes > 0 || fogged
			if m.Relaxed != "token-order" && (in.token < b.s.token || in.token == b.s.token && !again) {
				continue
			}
			b.s.token = in.token
		}
		// Nobody else can hold it, whatever a lossy fault brought back.
		if b.s.fog > 0 && b.at.from > b.s.firm {
			if b.s.fogOwner != "" && b.s.fogOwner != in.owner {
				b.s.fog = 0
			} else {
				b.s.fogOwner = in.owner
			}
		}
		m.add(b.s, in, b.at, true)
		after = append(after, b)
	}
	return after
}

// refuse: something must have stood in the way, and the answer must not be later
// than the end of all that can be held.
func (m *Model) refuse(s *lock, in *step, at moment, blocks func(hold) bool) []branch {
	fogged := m.foggy(s, at)
	blocked := in.excused || fogged || m.Relaxed == "ghost-hold"
	end := int64(0)
	for _, h := range s.holds {
		end = max(end, h.hi)
		blocked = blocked || blocks(h)
	}
	if fogged {
		end = max(end, s.fog)
	}
	late := in.answer > 0 && at.from+in.answer*1000 > end+m.Error+1000
	if !blocked || in.answer == -1 || (late && !in.reserved && m.Relaxed != "lease-extended" && m.Relaxed != "ghost-hold") {
		return nil
	}
	return []branch{{s, at}}
}

// notHeld: the owner has no live hold of that kind.
func (m *Model) notHeld(s *lock, in *step, at moment, kind func(hold) bool) []branch {
	mine := func(h hold) bool { return h.owner == in.owner && kind(h) }
	if m.Relaxed == "lost-hold" {
		rest := s.holds[:0:0]
		for _, h := range s.holds {
			if !mine(h) {
				rest = append(rest, h)
			}
		}
		s.holds = rest
		return []branch{{s, at}}
	}
	var after []branch
	for _, b := range m.settle(s, in.owner, at) {
		if b.s.find(mine) < 0 {
			after = append(after, b)
		}
	}
	return after
}

func (m *Model) downgrade(s *lock, in *step, at moment) []branch {
	if in.outcome == history.NotHeld {
		return m.notHeld(s, in, at, func(h hold) bool { return h.write })
	}
	var after []branch
	for _, b := range m.settle(s, in.owner, at) {
		s := b.s
		if s.count(in.owner, true) == 0 && !m.fogged(s, in.owner, b.at) && m.Relaxed != "unheld-release" {
			continue
		}
		conn, lease := 0, in.lease
		i := s.next(in.owner, true, in.conn)
		if i >= 0 {
			conn = s.holds[i].conn
		}
		rest := s.holds[:0:0]
		for _, h := range s.holds {
			if h.owner != in.owner || !h.write {
				rest = append(rest, h)
			}
		}
		s.holds = rest
		again := *in
		again.once, again.session, again.conn, again.lease = true, false, in.conn, lease
		fresh := s.count(in.owner, false) == 0
		m.add(s, &again, b.at, false)
		if fresh && conn != 0 {
			h := &s.holds[s.last(in.owner, false)]
			h.conn, h.lo, h.hi = conn, max(h.lo, in.sure), history.Never
		}
		if fresh && i < 0 {
			// Nothing is known of its write hold: a session may have had it, of any connection.
			h := &s.holds[s.last(in.owner, false)]
			h.lo, h.hi = min(h.lo, b.at.from), history.Never
		}
		after = append(after, b)
	}
	return after
}

func (m *Model) renew(s *lock, in *step, at moment) []branch {
	if in.outcome == history.NotHeld {
		return m.notHeld(s, in, at, func(hold) bool { return true })
	}
	var after []branch
	for _, b := range m.settle(s, in.owner, at) {
		held := false
		for i := range b.s.holds {
			if h := &b.s.holds[i]; h.owner == in.owner {
				held = true
				h.lo, h.hi = max(h.lo, b.at.from+in.lease), max(h.hi, b.at.to+in.lease)
				h.plain = max(h.plain, b.at.to+in.lease)
			}
		}
		if m.fogged(b.s, in.owner, b.at) {
			held = true
			b.s.fog = max(b.s.fog, b.at.to+in.lease)
		}
		if !held && m.Relaxed == "revived-hold" {
			held, b.s.fog, b.s.fogOwner = true, b.at.to+in.lease, in.owner
		}
		if held {
			b.s.bind(in.owner)
			after = append(after, b)
		}
	}
	return after
}

// next is the hold that UNLOCK gives back: of this connection's session, a plain
// one, of another session; among equals the newest.
func (s *lock) next(owner string, write bool, conn int) int {
	best, rank := -1, -1
	for i, h := range s.holds {
		if h.owner != owner || h.write != write {
			continue
		}
		r := 0
		switch h.conn {
		case conn:
			r = 2
		case 0:
			r = 1
		}
		if r >= rank {
			best, rank = i, r
		}
	}
	return best
}

func (m *Model) unlock(s *lock, in *step, at moment) []branch {
	wanted := func(h hold) bool { return in.kind == "" || in.kind == "all" || h.write == (in.kind == "write") }
	if in.outcome == history.NotHeld {
		return m.notHeld(s, in, at, wanted)
	}
	var after []branch
	for _, b := range m.settle(s, in.owner, at) {
		fogged := m.fogged(b.s, in.owner, b.at)
		if b.s.find(func(h hold) bool { return h.owner == in.owner && wanted(h) }) < 0 {
			// A hold that is not known, or only a reservation.
			if fogged || (in.reserved && in.kind == "all") || m.Relaxed == "unheld-release" {
				after = append(after, b)
			}
			continue
		}
		if fogged {
			after = append(after, branch{b.s.clone(), b.at})
		}
		reads := b.s.count(in.owner, false) > 0
		switch in.kind {
		case "all":
			b.s.holds = filter(b.s.holds, others(in.owner))
		case "":
			b.s.remove(b.s.next(in.owner, !reads, in.conn), b.at)
		default:
			b.s.remove(b.s.next(in.owner, in.kind == "write", in.conn), b.at)
		}
		if in.answer == anything || m.Relaxed == "release-reply" {
			after = append(after, b)
			continue
		}
		left := b.s.find(func(h hold) bool { return h.owner == in.owner }) >= 0
		switch in.answer {
		case 1: // nothing is held
			if left || !m.lapse(b.s, &b.at, others(in.owner)) {
				continue
			}
			if b.at.from > b.s.firm {
				b.s.fog = 0
			}
		case 0: // something is: what is left of this owner's holds, or another's
			if !left && !fogged && !m.foggy(b.s, b.at) &&
				b.s.find(func(h hold) bool { return h.owner != in.owner && m.canLive(h, b.at) }) < 0 {
				continue
			}
		}
		after = append(after, b)
	}
	return after
}

func filter(holds []hold, keep func(hold) bool) []hold {
	kept := holds[:0:0]
	for _, h := range holds {
		if keep(h) {
			kept = append(kept, h)
		}
	}
	return kept
}

func (m *Model) force(s *lock, in *step, at moment) []branch {
	if in.answer == 0 {
		if m.Relaxed != "lost-hold" && !m.lapse(s, &at, func(hold) bool { return true }) {
			return nil
		}
	} else if in.answer == 1 && len(s.holds) == 0 && !in.reserved && !m.foggy(s, at) && m.Relaxed != "ghost-hold" {
		return nil
	}
	s.empty(at)
	return []branch{{s, at}}
}

// inspect: what it lists must be what can live, and nothing that surely lives is
// missing.
func (m *Model) inspect(s *lock, in *step, at moment) []branch {
	if m.Relaxed == "ghost-hold" || m.Relaxed == "lost-hold" {
		return []branch{{s, at}}
	}
	listed := map[[2]string]history.Holder{}
	for _, h := range in.view.Holders {
		listed[[2]string{h.Owner, h.Kind}] = h
	}
	type tally struct {
		sure, possible int
		lo, hi         int64
	}
	known := map[[2]string]*tally{}
	for _, h := range s.holds {
		name := [2]string{h.owner, "read"}
		if h.write {
			name[1] = "write"
		}
		t := known[name]
		if t == nil {
			t = new(tally)
			known[name] = t
		}
		t.possible++
		if !m.canLapse(h, at) {
			t.sure++
			if h.hi < history.Never { // else the server renews it in time
				t.lo = max(t.lo, h.lo)
			}
		}
		t.hi = max(t.hi, h.hi)
	}
	for name, h := range listed {
		t := known[name]
		fogged := m.fogged(s, name[0], at)
		if t == nil {
			if !fogged {
				return nil
			}
			continue
		}
		if fogged {
			continue
		}
		late := at.from+h.TTL*1000 > t.hi+m.Error+1000
		if h.Holds > t.possible || h.Holds < t.sure || (late && m.Relaxed != "lease-extended") {
			return nil
		}
		if t.lo > 0 && at.to+h.TTL*1000 < t.lo-m.Error-1000 {
			return nil // it was cut short
		}
		if h.Holds == t.possible {
			at.to = min(at.to, t.hi+m.Error)
		}
	}
	gone := func(h hold) bool {
		kind := "read"
		if h.write {
			kind = "write"
		}
		_, ok := listed[[2]string{h.owner, kind}]
		return !ok
	}
	if !m.lapse(s, &at, gone) {
		return nil
	}
	return []branch{{s, at}}
}
