package check

import (
	"fmt"
	"slices"
	"strings"

	"robustness/history"
)

// hold is one acquisition. Nobody outside the server knows its end to the µs, so
// it has two: it surely lives until lo, and has surely lapsed after hi.
type hold struct {
	owner  string
	write  bool
	conn   int // the connection of a session hold, else 0
	lo, hi int64
	lease  int64
	// plain is what hi would be if the server had renewed nothing for a session.
	plain int64
}

// lock is one possible state of one lock.
type lock struct {
	// now: the last step was taken at this time or later.
	now   int64
	holds []hold // those of one owner in the order in which they are numbered
	token int64  // the last fencing token
	// fog: until then holds may live that a lossy fault brought back, or that are
	// not known for another reason: of this owner, or of anybody if it is empty.
	fog      int64
	fogOwner string
	// firm: before that no grant shows that the unknown holds are gone, as calls from
	// before the fault may still be granted.
	firm int64
}

func (s *lock) clone() *lock {
	c := *s
	c.holds = slices.Clone(s.holds)
	return &c
}

func (s *lock) equal(o *lock) bool {
	return s.now == o.now && s.token == o.token && s.fog == o.fog && s.fogOwner == o.fogOwner &&
		slices.Equal(s.holds, o.holds)
}

func (s *lock) hash() uint64 {
	h := uint64(s.now)*31 + uint64(s.token)
	mix := func(x uint64) { h = (h ^ x) * 1099511628211 }
	for _, x := range s.holds {
		for i := range len(x.owner) {
			mix(uint64(x.owner[i]))
		}
		mix(uint64(x.lo))
		mix(uint64(x.hi))
		mix(uint64(x.conn))
	}
	return h
}

func (s *lock) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %d:", s.now)
	for _, h := range s.holds {
		kind := "reads"
		if h.write {
			kind = "writes"
		}
		fmt.Fprintf(&b, " %s %s until %d..%d", h.owner, kind, h.lo, h.hi)
		if h.conn != 0 {
			fmt.Fprintf(&b, " (session of %d)", h.conn)
		}
		b.WriteByte(';')
	}
	if len(s.holds) == 0 {
		b.WriteString(" free")
	}
	if s.fog > s.now {
		fmt.Fprintf(&b, " unknown holds of %q until %d", s.fogOwner, s.fog)
	}
	return b.String()
}

// moment is when a step is taken: at one point of [from, to].
type moment struct{ from, to int64 }

// canLive says whether the hold may live at the moment, canLapse whether it may
// have lapsed. Both can be true.
func (m *Model) canLive(h hold, at moment) bool  { return at.from <= h.hi+m.Error }
func (m *Model) canLapse(h hold, at moment) bool { return at.to >= h.lo-m.Error }

// lapse lets holds end, if all of them can have; the moment is then after that.
func (m *Model) lapse(s *lock, at *moment, which func(hold) bool) bool {
	rest := s.holds[:0:0]
	for _, h := range s.holds {
		if !which(h) {
			rest = append(rest, h)
			continue
		}
		if !m.canLapse(h, *at) {
			return false
		}
		at.from = max(at.from, h.lo-m.Error)
	}
	s.holds = rest
	return at.from <= at.to
}

// branch is a state and the moment of the step in it.
type branch struct {
	s  *lock
	at moment
}

// settle decides for each hold of the owner whether it lives at the moment: one
// branch for each combination that can be. Write holds lapse together, and take
// the owner's read holds with them.
func (m *Model) settle(s *lock, owner string, at moment) []branch {
	branches := []branch{{s, at}}
	mine := func(h hold) bool { return h.owner == owner }
	if w := s.find(func(h hold) bool { return mine(h) && h.write }); w >= 0 {
		var next []branch
		h := s.holds[w]
		if m.canLive(h, at) {
			next = append(next, branch{s, moment{at.from, min(at.to, h.hi+m.Error)}})
		}
		dead, later := s.clone(), at
		if m.lapse(dead, &later, mine) {
			next = append(next, branch{dead, later})
		}
		branches = next
	}
	for i := len(s.holds) - 1; i >= 0; i-- {
		h := s.holds[i]
		if !mine(h) || h.write {
			continue
		}
		var next []branch
		for _, b := range branches {
			at := slices.Index(b.s.holds, h)
			if at < 0 { // it lapsed with the write hold
				next = append(next, b)
				continue
			}
			if m.canLive(h, b.at) {
				next = append(next, branch{b.s, moment{b.at.from, min(b.at.to, h.hi+m.Error)}})
			}
			if m.canLapse(h, b.at) {
				dead := b.s.clone()
				dead.holds = slices.Delete(dead.holds, at, at+1)
				later := moment{max(b.at.from, h.lo-m.Error), b.at.to}
				if later.from <= later.to {
					next = append(next, branch{dead, later})
				}
			}
		}
		branches = next
	}
	for i := range branches {
		branches[i].s = branches[i].s.clone()
	}
	return branches
}

func (s *lock) find(which func(hold) bool) int { return slices.IndexFunc(s.holds, which) }

func (s *lock) count(owner string, write bool) int {
	n := 0
	for _, h := range s.holds {
		if h.owner == owner && h.write == write {
			n++
		}
	}
	return n
}

// last is the index of the highest-numbered hold of that kind, or -1.
func (s *lock) last(owner string, write bool) int {
	for i := len(s.holds) - 1; i >= 0; i-- {
		if s.holds[i].owner == owner && s.holds[i].write == write {
			return i
		}
	}
	return -1
}

// bind makes the ends of all write holds of the owner one, as they are one TTL:
// that of the hash, which is at least as late as the end of every live hold.
func (s *lock) bind(owner string) {
	if s.count(owner, true) == 0 {
		return
	}
	var lo, hi, plain int64
	for _, h := range s.holds {
		if h.owner == owner {
			lo, hi, plain = max(lo, h.lo), max(hi, h.hi), max(plain, h.plain)
		}
	}
	for i := range s.holds {
		if h := &s.holds[i]; h.owner == owner && h.write {
			h.lo, h.hi, h.plain = lo, hi, plain
		}
	}
}

// unbind ends the renewing of write holds once no session hold of the owner is
// left: the server renewed the hash for them until now.
func (s *lock) unbind(owner string, at moment, lease, sure int64) {
	bound := s.find(func(h hold) bool { return h.owner == owner && h.conn != 0 }) >= 0
	for i := range s.holds {
		h := &s.holds[i]
		if h.owner != owner || !h.write {
			continue
		}
		// Until now the server renewed the one end of all write holds for this session.
		h.plain = max(h.plain, at.to+lease)
		if bound || h.hi < history.Never {
			continue
		}
		h.hi = max(h.plain, at.to+max(lease, h.lease))
		h.plain = h.hi
		h.lo = min(h.lo, at.from)
		if sure == history.Never {
			h.lo = at.from + lease/2
		}
	}
}

func (s *lock) remove(i int, at moment) {
	h := s.holds[i]
	s.holds = slices.Delete(s.holds, i, i+1)
	if h.conn != 0 {
		s.unbind(h.owner, at, h.lease, h.lo)
	}
}

// fogged says whether holds of the owner that are not known may live.
func (m *Model) fogged(s *lock, owner string, at moment) bool {
	return m.foggy(s, at) && (s.fogOwner == "" || s.fogOwner == owner)
}

// foggy says whether anybody may have such holds.
func (m *Model) foggy(s *lock, at moment) bool { return s.fog > 0 && at.from <= s.fog+m.Error }
