package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Plan says what to start.
type Plan struct {
	Engine      string // the server's executable
	Module      string
	Topology    string // single, sentinel or cluster
	Persistence string // always, everysec or rdb
	Folder      string
	ClockSource string
	Now         func() int64 // the clock of the histories
}

// Group is all servers of a run.
type Group struct {
	Plan
	Nodes     []*Node // servers, not sentinels
	Sentinels []*Node
	Links     *Links
	Clock     *Clock
	network   string
	port      int
	added     int // servers and sentinels, also those that were removed
	primary   atomic.Pointer[Node]
	mutex     sync.Mutex
	slots     [16384]*Node
}

// Start starts a whole group.
func Start(plan Plan) (*Group, error) {
	g := &Group{Plan: plan, Links: newLinks(plan.Now), network: fmt.Sprintf("127.%d.%d", 32+rand.IntN(200), rand.IntN(200))}
	if err := os.MkdirAll(plan.Folder, 0o755); err != nil {
		return nil, err
	}
	var err error
	if g.port, err = claimPort(); err != nil {
		return nil, err
	}
	if g.Clock, err = makeClock(plan.ClockSource, plan.Folder); err != nil {
		return nil, err
	}
	switch plan.Topology {
	case "single":
		return g, g.startReplicated(1)
	case "sentinel":
		if err := g.startReplicated(2); err != nil {
			return g, err
		}
		return g, g.startSentinels()
	case "cluster":
		return g, g.startCluster()
	}
	return nil, fmt.Errorf("no topology %q", plan.Topology)
}

// Stop ends what this program started.
func (g *Group) Stop() {
	for _, n := range append(g.Nodes, g.Sentinels...) {
		if n.process != nil {
			n.Kill()
		}
	}
}

func (g *Group) add(name string, lines ...string) (*Node, error) {
	g.added++
	i := g.added
	n := &Node{
		Name: name, Port: g.port, dir: g.Folder, engine: g.Engine,
		// Two addresses for each: its own, and that of its proxy.
		IP: fmt.Sprintf("%s.%d", g.network, 2*i), PublicIP: fmt.Sprintf("%s.%d", g.network, 2*i+1),
		Sentinel: strings.HasPrefix(name, "sentinel"),
		env:      g.Clock.environment(),
	}
	common := []string{
		fmt.Sprint("port ", n.Port), "bind " + n.IP, "bind-source-addr " + n.IP, "protected-mode no", "dir " + g.Folder,
		"daemonize no",
	}
	if n.Sentinel {
		g.Sentinels = append(g.Sentinels, n)
		common = append(common, "sentinel announce-ip "+n.PublicIP, fmt.Sprint("sentinel announce-port ", n.Port))
	} else {
		g.Nodes = append(g.Nodes, n)
		common = append(common, "loadmodule "+g.Module, "repl-diskless-sync-delay 0", "repl-timeout 5",
			"repl-ping-replica-period 1", "dbfilename "+name+".rdb", "auto-aof-rewrite-percentage 0",
			"appenddirname "+name, "hz 10", "maxmemory-policy noeviction")
		switch g.Persistence {
		case "always", "everysec":
			common = append(common, "appendonly yes", "appendfsync "+g.Persistence, `save ""`)
		case "rdb":
			common = append(common, "appendonly no", "save 1 1")
		}
	}
	n.config = strings.Join(append(common, lines...), "\n") + "\n"
	g.Links.names[n.IP] = n.Name
	ports := []int{0}
	if g.Topology == "cluster" {
		ports = append(ports, bus)
	}
	for _, offset := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", n.PublicIP, n.Port+offset))
		if err != nil {
			return nil, err
		}
		go g.Links.serve(listener, n.Name, fmt.Sprintf("%s:%d", n.IP, n.Port+offset), offset > 0)
	}
	return n, n.writeConfig()
}

// startReplicated starts a primary with so many replicas.
func (g *Group) startReplicated(replicas int) error {
	for i := range replicas + 1 {
		n, err := g.add(fmt.Sprint("node", i+1))
		if err != nil {
			return err
		}
		n.config += fmt.Sprintf("replica-announce-ip %s\nreplica-announce-port %d\n", n.PublicIP, n.Port)
		if i > 0 {
			n.config += fmt.Sprintf("replicaof %s %d\n", g.Nodes[0].PublicIP, g.port)
		}
		if err := n.writeConfig(); err != nil {
			return err
		}
		if err := n.Start(); err != nil {
			return err
		}
	}
	g.primary.Store(g.Nodes[0])
	return g.AwaitReplicas(20 * time.Second)
}

// Primary is the server that the harness takes for the primary of the lock's slot.
func (g *Group) Primary(key string) *Node {
	if g.Topology != "cluster" {
		return g.primary.Load()
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.slots[Slot(key)]
}

// Primaries are all servers that serve locks.
func (g *Group) Primaries() []*Node {
	if g.Topology != "cluster" {
		return []*Node{g.primary.Load()}
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var found []*Node
	seen := map[*Node]bool{}
	for _, n := range g.slots {
		if n != nil && !seen[n] {
			seen[n] = true
			found = append(found, n)
		}
	}
	return found
}

// Replicas are those of a primary, by what the replicas say.
func (g *Group) Replicas(primary *Node) []*Node {
	var found []*Node
	for _, n := range g.Nodes {
		if n != primary && n.Alive() && n.Info("replication", "role") == "slave" && n.Info("replication", "master_host") == primary.PublicIP {
			found = append(found, n)
		}
	}
	return found
}

// byPublicIP finds a node by the address that it announces.
func (g *Group) byPublicIP(ip string) *Node {
	for _, n := range g.Nodes {
		if n.PublicIP == ip {
			return n
		}
	}
	return nil
}

// Refresh finds out which server is the primary now. It asks as a client would:
// the sentinels, the nodes of the cluster, or the servers themselves.
func (g *Group) Refresh() bool {
	switch g.Topology {
	case "sentinel":
		for _, s := range g.Sentinels {
			reply, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "soak")
			if list, ok := reply.([]any); err == nil && ok && len(list) == 2 {
				if n := g.byPublicIP(list[0].(string)); n != nil {
					g.primary.Store(n)
					return true
				}
			}
		}
		return false
	case "cluster":
		return g.refreshSlots()
	}
	for _, n := range g.Nodes {
		if n.Alive() && n.IsPrimary() {
			g.primary.Store(n)
			return true
		}
	}
	return false
}

// Well waits until the group serves again: a primary answers, its replicas follow.
func (g *Group) Well(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		if g.well() {
			// Before that some of them may have known less.
			g.Refresh()
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the servers are not well after %s: %s", limit, g.describe())
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

func (g *Group) well() bool {
	for _, n := range g.Nodes {
		if !n.Alive() || n.Info("persistence", "loading") != "0" {
			return false
		}
	}
	// Before the sentinels are started there is nobody to ask.
	if starting := g.Topology == "sentinel" && len(g.Sentinels) == 0; !starting && !g.Refresh() {
		return false
	}
	if g.Topology == "cluster" {
		return g.clusterWell()
	}
	p := g.primary.Load()
	if !p.IsPrimary() {
		return false
	}
	for _, n := range g.Nodes {
		if n != p && (n.Info("replication", "master_host") != p.PublicIP || n.Info("replication", "master_link_status") != "up") {
			return false
		}
	}
	return p.Info("replication", "connected_slaves") == strconv.Itoa(len(g.Nodes)-1)
}

// AwaitReplicas waits until all replicas are in step.
func (g *Group) AwaitReplicas(limit time.Duration) error { return g.Well(limit) }

func (g *Group) describe() string {
	var b strings.Builder
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "%s alive=%v role=%s of=%s link=%s; ", n.Name, n.Alive(), n.Info("replication", "role"),
			n.Info("replication", "master_host"), n.Info("replication", "master_link_status"))
		if g.Topology == "cluster" {
			fmt.Fprintf(&b, "%s; ", n.Info("cluster", "cluster_state"))
		}
	}
	return b.String()
}

// Logs is where the servers write.
func (g *Group) Logs() string { return filepath.Join(g.Folder, "*.log") }

// Compare returns what a replica has otherwise than its primary, of these locks.
func (g *Group) Compare(keys []string) [][3]string {
	var found [][3]string
	for _, p := range g.Primaries() {
		for _, r := range g.Replicas(p) {
			if !caughtUp(p, r) {
				continue
			}
			for _, key := range keys {
				if g.Primary(key) != p {
					continue
				}
				if g.Topology == "cluster" {
					_, _ = r.Do("READONLY")
				}
				a, b := state(p, key), state(r, key)
				// It may have changed between the two looks.
				if a != b && state(p, key) == a && caughtUp(p, r) && state(r, key) != a {
					found = append(found, [3]string{key, a, b})
				}
			}
		}
	}
	return found
}

// caughtUp waits until the replica has all that the primary had sent.
func caughtUp(primary, replica *Node) bool {
	sent, err := strconv.ParseInt(primary.Info("replication", "master_repl_offset"), 10, 64)
	return err == nil && replica.Until("it has caught up", 5*time.Second, func() bool {
		got, err := strconv.ParseInt(replica.Info("replication", "slave_repl_offset"), 10, 64)
		return err == nil && got >= sent
	}) == nil
}

// state is the hash of a lock and when it ends, if that is not too near.
func state(n *Node, key string) string {
	end, err := n.Do("PEXPIRETIME", key)
	if err != nil {
		return err.Error()
	}
	clock, err := n.Do("TIME")
	if err != nil {
		return err.Error()
	}
	now, _ := strconv.ParseInt(clock.([]any)[0].(string), 10, 64)
	if at, _ := end.(int64); at > 0 && at < now*1000+1300 {
		return "ends"
	}
	if end == int64(-2) {
		return "ends"
	}
	hash, _ := n.Do("HGETALL", key)
	return fmt.Sprint(hash, " until ", end)
}
