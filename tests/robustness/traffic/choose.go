package traffic

import (
	"slices"
	"time"

	"robustness/history"
	"robustness/servers"
)

// next makes one choice, by what the client thinks that it holds.
func (c *client) next() {
	lock := c.locks[c.random.IntN(len(c.locks))]
	held := c.believed(lock.Key)
	if len(held) == 0 {
		c.begin(lock)
	} else {
		c.goOn(lock, held)
	}
}

// chance is true with the probability p.
func (c *client) chance(p float64) bool { return c.random.Float64() < p }

// believed are the holds that the client thinks live.
func (c *client) believed(key string) []belief {
	now := c.Now()
	c.holds[key] = slices.DeleteFunc(c.holds[key], func(b belief) bool { return b.end < now })
	return c.holds[key]
}

func one(key, kind string) []history.Part { return []history.Part{{Key: key, Kind: kind}} }

// lease is short, so that it lapses, or long, so that it outlives a fault.
func (c *client) lease() int64 {
	switch x := c.random.Float64(); {
	case x < 0.4:
		return 30 + c.random.Int64N(120)
	case x < 0.8:
		return 200 + c.random.Int64N(400)
	}
	return 800 + c.random.Int64N(900)
}

// take asks for holds.
func (c *client) take(op history.Op, blocks float64) history.Op {
	op.Lease = c.lease()
	if c.chance(0.18) {
		op.Session, op.Lease = true, 1200+c.random.Int64N(1300)
	}
	op.Once = c.chance(0.1)
	if op.Command != "rlock" && (op.Command != "mlock" || slices.ContainsFunc(op.Parts, func(p history.Part) bool { return p.Kind == "write" })) {
		op.Fence = c.chance(0.6)
	}
	if c.chance(blocks) {
		op.Blocks, op.Block = true, 20+c.random.Int64N(600)
		if c.chance(0.25) {
			op.Block += 900
		}
	} else if op.Command == "wlock" && c.chance(0.06) {
		op.Reserve = 30 + c.random.Int64N(200)
	}
	if op.Blocks && c.chance(0.06) {
		// It leaves while it waits.
		node := c.Group.Primary(op.Parts[0].Key)
		if node == nil {
			return op
		}
		return c.send(node, op, time.Duration(10+c.random.IntN(120))*time.Millisecond, true)
	}
	op = c.do(op)
	if op.Outcome == history.OK {
		for _, p := range op.Parts {
			kind := p.Kind
			if op.Command == "rlock" {
				kind = "read"
			} else if op.Command != "mlock" {
				kind = "write"
			}
			end := op.Return + op.Lease*1000
			if op.Session {
				end += 10_000_000
			}
			c.holds[p.Key] = append(c.holds[p.Key], belief{kind, end})
		}
	}
	return op
}

// begin is what a client does that holds nothing here.
func (c *client) begin(lock Lock) {
	switch x := c.random.Float64(); {
	case x < 0.38:
		c.take(history.Op{Command: "rlock", Parts: one(lock.Key, "")}, lock.Blocks)
	case x < 0.68:
		c.take(history.Op{Command: "wlock", Parts: one(lock.Key, "")}, lock.Blocks)
	case x < 0.82:
		c.several(lock)
	case x < 0.87:
		c.do(history.Op{Command: "inspect", Parts: one(lock.Key, "")})
	case x < 0.90:
		c.do(history.Op{Command: "unlock", Parts: one(lock.Key, c.pick("", "read", "write", "all"))})
	case x < 0.91:
		c.do(history.Op{Command: "renew", Parts: one(lock.Key, ""), Lease: c.lease()})
	case x < 0.915:
		c.do(history.Op{Command: c.pick("force", "del"), Parts: one(lock.Key, "")})
	case x < 0.935:
		c.look(lock)
	case x < 0.955:
		c.askReplica(lock)
	default:
		c.scenario(lock)
	}
}

// goOn is what a holder does.
func (c *client) goOn(lock Lock, held []belief) {
	writes := slices.ContainsFunc(held, func(b belief) bool { return b.kind == "write" })
	switch x := c.random.Float64(); {
	case x < 0.5:
		c.release(lock.Key, held)
	case x < 0.56:
		c.do(history.Op{Command: "renew", Parts: one(lock.Key, ""), Lease: c.lease()})
	case x < 0.60 && writes:
		c.take(history.Op{Command: "wlock", Parts: one(lock.Key, "")}, lock.Blocks)
	case x < 0.64:
		c.take(history.Op{Command: "rlock", Parts: one(lock.Key, "")}, lock.Blocks)
	case x < 0.70 && writes:
		op := c.do(history.Op{Command: "downgrade", Parts: one(lock.Key, ""), Lease: c.lease()})
		if op.Outcome == history.OK {
			c.holds[lock.Key] = []belief{{"read", op.Return + op.Lease*1000}}
		}
	case x < 0.70:
		c.take(history.Op{Command: "upgrade", Parts: one(lock.Key, "")}, lock.Blocks)
	case x < 0.75:
		c.do(history.Op{Command: "inspect", Parts: one(lock.Key, "")})
	case x < 0.79:
		c.renewLate(lock.Key, held)
	case x < 0.83:
		c.holds[lock.Key] = nil // it forgets, and the lease lapses
	case x < 0.86:
		c.closeNow(lock.Key)
	case x < 0.89:
		c.side = 1 - c.side // the same owner on its other connection
	case x < 0.93:
		c.pause(150)
	default:
		c.takeAll()
	}
}

// pick chooses one of the words.
func (c *client) pick(words ...string) string { return words[c.random.IntN(len(words))] }

func (c *client) release(key string, held []belief) {
	kind := ""
	switch x := c.random.Float64(); {
	case x < 0.3:
		kind = held[len(held)-1].kind
	case x < 0.5:
		kind = "all"
	}
	op := c.do(history.Op{Command: "unlock", Parts: one(key, kind)})
	switch {
	case op.Outcome == history.NotHeld && (kind == "" || kind == "all"), kind == "all", op.Outcome == history.OK && op.Answer == 1:
		c.holds[key] = nil
	case op.Outcome != history.OK:
	case kind == "":
		i := slices.IndexFunc(held, func(b belief) bool { return b.kind == "read" })
		c.holds[key] = slices.Delete(held, max(i, 0), max(i, 0)+1)
	default:
		c.holds[key] = held[:len(held)-1]
	}
}

// renewLate renews about when the lease ends: just before, or just after.
func (c *client) renewLate(key string, held []belief) {
	end := held[0].end
	for _, b := range held {
		end = max(end, b.end)
	}
	wait := end - c.Now() + c.random.Int64N(12_000) - 1_000
	if wait > 0 && wait < 400_000 {
		time.Sleep(time.Duration(wait) * time.Microsecond)
	}
	c.do(history.Op{Command: "renew", Parts: one(key, ""), Lease: c.lease()})
}

// several takes two or three locks together, and gives them back.
func (c *client) several(lock Lock) {
	op := history.Op{Command: "mlock"}
	for _, l := range append([]Lock{lock}, c.locks...) {
		if !slices.ContainsFunc(op.Parts, func(p history.Part) bool { return p.Key == l.Key }) {
			op.Parts = append(op.Parts, history.Part{Key: l.Key, Kind: c.pick("read", "write")})
		}
	}
	op = c.take(op, lock.Blocks)
	switch {
	case op.Outcome == history.Refused && c.chance(0.4):
		// Nothing may have been taken.
		for _, p := range op.Parts {
			c.do(history.Op{Command: "inspect", Parts: one(p.Key, "")})
		}
	case op.Outcome == history.OK && c.chance(0.3):
		for _, p := range op.Parts {
			c.do(history.Op{Command: "inspect", Parts: one(p.Key, "")})
		}
	}
	if op.Outcome == history.OK && c.chance(0.7) {
		c.pause(30)
		c.takeAll()
	}
}

// takeAll gives back, or renews, all that the client thinks it holds.
func (c *client) takeAll() {
	var all []history.Part
	for key := range c.holds {
		for _, b := range c.believed(key) {
			if !slices.ContainsFunc(all, func(p history.Part) bool { return p.Key == key }) {
				all = append(all, history.Part{Key: key, Kind: b.kind})
			}
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b history.Part) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	if c.chance(0.25) {
		for i := range all {
			all[i].Kind = ""
		}
		c.do(history.Op{Command: "mrenew", Parts: all, Lease: c.lease()})
		return
	}
	whole := c.chance(0.5)
	for i := range all {
		if whole {
			all[i].Kind = "all"
		}
	}
	op := c.do(history.Op{Command: "munlock", Parts: all})
	if op.Outcome == history.OK {
		for _, p := range all {
			c.holds[p.Key] = nil
		}
	}
}

// look asks what only tells, and changes nothing.
func (c *client) look(lock Lock) {
	c.do(history.Op{Command: c.pick("list", "queues", "log", "hotlocks"), Parts: []history.Part{{Key: lock.Key}}})
}

// askReplica sends a request to a replica, which must not grant it.
func (c *client) askReplica(lock Lock) {
	node := c.Group.Nodes[c.random.IntN(len(c.Group.Nodes))]
	if node == c.Group.Primary(lock.Key) || !c.isReplica(node) {
		return
	}
	op := history.Op{Command: c.pick("rlock", "wlock", "renew", "unlock"), Parts: one(lock.Key, ""), Replica: true}
	if op.Command != "unlock" {
		op.Lease = c.lease()
	}
	if op.Command == "rlock" || op.Command == "wlock" {
		op.Blocks, op.Block = c.chance(0.5), 30
		if !op.Blocks {
			op.Block = 0
		}
	}
	l := c.links[place{node, c.side}]
	if l == nil {
		return
	}
	op.Client, op.Conn, op.Owner, op.Node, op.Call = c.number, l.id, c.owner, node.Name, c.Now()
	reply, err := l.conn.Do(patience, words(&op)...)
	op.Return = c.Now()
	if err != nil {
		c.drop(l, l.heard, false)
		return
	}
	c.read(&op, reply)
	// It may have become the primary meanwhile.
	if c.isReplica(node) {
		c.record(op)
	}
}

// isReplica asks the server itself.
func (c *client) isReplica(node *servers.Node) bool {
	l, err := c.connect(node)
	if err != nil {
		return false
	}
	reply, err := l.conn.Do(time.Second, "ROLE")
	if err != nil {
		c.drop(l, l.heard, false)
		return false
	}
	list, ok := reply.([]any)
	return ok && len(list) > 0 && list[0] == "slave"
}
