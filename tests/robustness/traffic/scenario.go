package traffic

import (
	"robustness/history"
)

// scenario plays one of the short sequences in which bindings of sessions could
// end a hold that is not theirs.
func (c *client) scenario(lock Lock) {
	kind := c.pick("rlock", "wlock")
	take := func(session bool) bool {
		op := history.Op{Command: kind, Parts: one(lock.Key, ""), Lease: 800 + c.random.Int64N(600), Session: session}
		return c.do(op).Outcome == history.OK
	}
	release := func() { c.do(history.Op{Command: "unlock", Parts: one(lock.Key, "")}) }
	defer func() {
		c.do(history.Op{Command: "unlock", Parts: one(lock.Key, "all")})
		c.holds[lock.Key] = nil
	}()
	if !take(true) {
		return
	}
	switch c.random.IntN(4) {
	case 0: // the session hold is given back, a plain one taken, the connection closes
		release()
		if !take(false) {
			return
		}
	case 1: // the same by the owner's other connection
		c.side = 1 - c.side
		release()
		if !take(false) {
			return
		}
		c.side = 1 - c.side
	case 2: // a plain hold beside it stays
		c.side = 1 - c.side
		if !take(false) {
			return
		}
		c.side = 1 - c.side
	case 3: // ONCE moves the binding to the other connection
		c.side = 1 - c.side
		op := history.Op{Command: kind, Parts: one(lock.Key, ""), Lease: 1200, Session: true, Once: true}
		if c.do(op).Outcome != history.OK {
			return
		}
		c.side = 1 - c.side
	}
	c.closeNow(lock.Key)
	c.pause(60)
	c.do(history.Op{Command: "inspect", Parts: one(lock.Key, "")})
	c.pause(60)
}
