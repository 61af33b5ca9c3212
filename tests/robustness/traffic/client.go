// Package traffic is the clients: each with its own connections, one call at a
// time, a random mix of all commands, and a note of every call and return.
package traffic

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"robustness/history"
	"robustness/resp"
	"robustness/servers"
)

// patience is how long a client waits for a reply beyond BLOCK's time.
const patience = 2500 * time.Millisecond

// link is one connection of a client.
type link struct {
	conn  *resp.Conn
	id    int
	node  *servers.Node
	heard int64 // when the last reply came
	bound bool  // it asked for a session hold
	trace *servers.Trace
}

// place names a connection of a client: to which node, and which of its two.
type place struct {
	node *servers.Node
	side int
}

// Client is one of them.
type client struct {
	*Traffic
	number int
	owner  string
	random *rand.Rand
	links  map[place]*link
	side   int
	locks  []Lock
	holds  map[string][]belief
}

// belief is a hold that the client thinks it has.
type belief struct {
	kind string
	end  int64
}

// connect returns the client's present connection to a node.
func (c *client) connect(node *servers.Node) (*link, error) {
	at := place{node, c.side}
	if l := c.links[at]; l != nil {
		return l, nil
	}
	conn, err := resp.Dial(node.Address(), time.Second)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, id: int(c.connections.Add(1)), node: node, heard: c.Now(), trace: c.Group.Links.Trace(conn.Local())}
	c.note(l.id, l.trace)
	c.links[at] = l
	return l, nil
}

// drop closes a connection and notes since when the server can know of its end:
// from is the last time at which it surely was open.
func (c *client) drop(l *link, from int64, chosen bool) {
	l.conn.Close()
	for at, other := range c.links {
		if other == l {
			delete(c.links, at)
		}
	}
	if l.bound {
		c.record(history.Op{Client: c.number, Conn: l.id, Owner: c.owner, Node: l.node.Name, Command: "close",
			Call: from, Return: c.Now(), Outcome: history.OK, Chosen: chosen})
	}
}

// notice finds out whether an idle connection is closed that may have a session.
func (c *client) notice() {
	for _, l := range c.links {
		if !l.bound || c.Now()-l.heard < 50_000 {
			continue
		}
		_, err := l.conn.Do(patience, "PING")
		switch {
		case err == nil:
			l.heard = c.Now()
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.drop(l, c.Now(), true)
		default:
			c.drop(l, l.heard, false)
		}
	}
}

// closeNow closes the client's present connection to the lock's server.
func (c *client) closeNow(key string) {
	if l := c.links[place{c.Group.Primary(key), c.side}]; l != nil {
		c.drop(l, c.Now(), true)
	}
}

// do sends a call to the server of its first lock, and records it.
func (c *client) do(op history.Op) history.Op {
	node := c.Group.Primary(op.Parts[0].Key)
	if node == nil {
		c.refresh()
		return op
	}
	return c.send(node, op, time.Duration(op.Block)*time.Millisecond+patience, false)
}

// send sends it to a node. A client that loses patience closes the connection.
func (c *client) send(node *servers.Node, op history.Op, limit time.Duration, impatient bool) history.Op {
	l, err := c.connect(node)
	if err != nil {
		c.refresh()
		c.pause(40)
		return op
	}
	op.Client, op.Conn, op.Owner, op.Node = c.number, l.id, c.owner, node.Name
	l.bound = l.bound || op.Session
	op.Call = c.Now()
	reply, err := l.conn.Do(limit, words(&op)...)
	op.Return = c.Now()
	if err != nil {
		op.Outcome = history.Lost
		if errors.Is(err, os.ErrDeadlineExceeded) {
			op.Silent = !impatient
			c.drop(l, op.Return, true)
		} else {
			c.drop(l, l.heard, false)
		}
		c.record(op)
		if !impatient {
			c.refresh()
			c.pause(60)
		}
		return op
	}
	l.heard = op.Return
	op.Passed = l.trace.Passed.Load()
	c.read(&op, reply)
	c.record(op)
	return op
}

// read takes the reply apart.
func (c *client) read(op *history.Op, reply any) {
	op.Outcome = history.OK
	switch r := reply.(type) {
	case resp.Error:
		op.Outcome, op.Error = history.Failed, string(r)
		word, rest, _ := strings.Cut(string(r), " ")
		switch word {
		case "NOTHELD":
			op.Outcome = history.NotHeld
		case "MOVED":
			if f := strings.Fields(rest); len(f) == 2 && !op.Replica {
				slot, _ := strconv.Atoi(f[0])
				c.Group.Moved(slot, c.Group.NodeAt(f[1]))
			}
		case "READONLY", "UNBLOCKED", "LOADING", "MASTERDOWN", "CLUSTERDOWN":
			if !op.Replica {
				c.refresh()
				c.pause(20)
			}
		}
	case int64:
		op.Answer = r
		switch op.Command {
		case "rlock", "wlock", "upgrade", "mlock":
			op.Outcome = history.Refused
		}
	case []any:
		switch op.Command {
		case "munlock", "mrenew":
			for i := range op.Parts {
				op.Parts[i].Answer, _ = r[i].(int64)
			}
		case "inspect":
			op.View = View(resp.Map(r))
		case "rlock", "wlock", "upgrade", "mlock":
			tokens := r[1:]
			for i := range op.Parts {
				if op.Parts[i].Kind != "read" && len(tokens) > 0 {
					op.Parts[i].Token, _ = tokens[0].(int64)
					tokens = tokens[1:]
				}
			}
		}
	}
}

// View reads the reply of INSPECT.
func View(m map[string]any) *history.View {
	v := new(history.View)
	v.Mode, _ = m["mode"].(string)
	v.Fence, _ = m["fence"].(int64)
	list, _ := m["holders"].([]any)
	for _, item := range list {
		h := resp.Map(item)
		holder := history.Holder{}
		holder.Owner, _ = h["owner"].(string)
		holder.Kind, _ = h["kind"].(string)
		holder.TTL, _ = h["ttl"].(int64)
		n, _ := h["holds"].(int64)
		holder.Holds = int(n)
		v.Holders = append(v.Holders, holder)
	}
	return v
}

// words are what goes over the wire.
func words(op *history.Op) []string {
	lease := strconv.FormatInt(op.Lease, 10)
	first := func() string { return op.Parts[0].Key }
	var w []string
	switch op.Command {
	case "rlock", "wlock", "upgrade", "downgrade", "renew":
		w = []string{"RWLOCK." + strings.ToUpper(op.Command), first(), op.Owner, lease}
	case "unlock":
		w = []string{"RWLOCK.UNLOCK", first(), op.Owner}
		if kind := op.Parts[0].Kind; kind != "" {
			w = append(w, strings.ToUpper(kind))
		}
	case "mlock":
		w = append([]string{"RWLOCK.MLOCK", op.Owner, lease}, clauses(op, "read", "write")...)
	case "munlock":
		w = append([]string{"RWLOCK.MUNLOCK", op.Owner}, clauses(op, "read", "write", "all")...)
	case "mrenew":
		w = []string{"RWLOCK.MRENEW", op.Owner, lease}
		for _, p := range op.Parts {
			w = append(w, p.Key)
		}
	case "force":
		w = []string{"RWLOCK.FORCEUNLOCK", first()}
	case "inspect":
		w = []string{"RWLOCK.INSPECT", first()}
	case "del":
		w = []string{"DEL", first()}
	case "list":
		w = []string{"RWLOCK.LIST", "0", "COUNT", "20"}
	case "queues", "log", "hotlocks":
		w = []string{"RWLOCK." + strings.ToUpper(op.Command)}
	}
	if op.Blocks {
		w = append(w, "BLOCK", strconv.FormatInt(op.Block, 10))
	}
	if op.Session {
		w = append(w, "SESSION")
	}
	if op.Once {
		w = append(w, "ONCE")
	}
	if op.Fence {
		w = append(w, "FENCE")
	}
	if op.Reserve > 0 {
		w = append(w, "RESERVE", strconv.FormatInt(op.Reserve, 10))
	}
	return w
}

// clauses names the locks by kind. It also puts the parts in the order of the
// clauses, which is that of the reply.
func clauses(op *history.Op, kinds ...string) []string {
	var w []string
	slices.SortStableFunc(op.Parts, func(a, b history.Part) int {
		return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
	})
	for _, kind := range kinds {
		var keys []string
		for _, p := range op.Parts {
			if p.Kind == kind {
				keys = append(keys, p.Key)
			}
		}
		if len(keys) > 0 {
			w = append(append(w, strings.ToUpper(kind), strconv.Itoa(len(keys))), keys...)
		}
	}
	return w
}

// pause is the client's own work, of at most so many ms.
func (c *client) pause(ms int) {
	time.Sleep(time.Duration(c.random.IntN(ms*1000)) * time.Microsecond)
}
