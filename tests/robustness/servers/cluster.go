package servers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startCluster starts three primaries with a replica each.
func (g *Group) startCluster() error {
	for range 6 {
		if _, err := g.startClusterNode(); err != nil {
			return err
		}
	}
	const share = 16384 / 3
	for i := range 3 {
		last := (i+1)*share - 1
		if i == 2 {
			last = 16383
		}
		if _, err := g.Nodes[i].Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*share), strconv.Itoa(last)); err != nil {
			return err
		}
		if _, err := g.Nodes[i].Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	first := g.Nodes[0]
	for _, n := range g.Nodes[1:] {
		if _, err := n.Do("CLUSTER", "MEET", first.PublicIP, strconv.Itoa(g.port), strconv.Itoa(g.port+bus)); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		if err := n.Until("it knows the others", 20*time.Second, func() bool {
			return n.Info("cluster", "cluster_enabled") == "1" && g.clusterInfo(n, "cluster_known_nodes") == "6" && len(g.ids(n)) == 6
		}); err != nil {
			return err
		}
	}
	for i := range 3 {
		replica, id := g.Nodes[i+3], g.id(g.Nodes[i])
		if err := replica.Until("it is a replica", 20*time.Second, func() bool {
			_, err := replica.Do("CLUSTER", "REPLICATE", id)
			return err == nil
		}); err != nil {
			return err
		}
	}
	return g.Well(30 * time.Second)
}

// startClusterNode starts a node that knows no other.
func (g *Group) startClusterNode() (*Node, error) {
	n, err := g.add(fmt.Sprint("node", g.added+1))
	if err != nil {
		return nil, err
	}
	n.config += fmt.Sprintf("cluster-enabled yes\ncluster-config-file %s.nodes\ncluster-node-timeout 1500\n"+
		"cluster-replica-validity-factor 0\ncluster-allow-replica-migration no\ncluster-announce-ip %s\ncluster-announce-port %d\ncluster-announce-bus-port %d\n",
		n.Name, n.PublicIP, g.port, g.port+bus)
	if err := n.writeConfig(); err != nil {
		return nil, err
	}
	return n, n.Start()
}

// AddPrimary adds a primary without slots and without a replica to a cluster.
func (g *Group) AddPrimary() (*Node, error) {
	n, err := g.startClusterNode()
	if err != nil {
		return nil, err
	}
	n.alone = true
	first := g.Nodes[0]
	if _, err := n.Do("CLUSTER", "MEET", first.PublicIP, strconv.Itoa(g.port), strconv.Itoa(g.port+bus)); err != nil {
		return nil, err
	}
	return n, g.Well(30 * time.Second)
}

// RemovePrimary takes a primary that AddPrimary has added, and that has no slots, out of
// the cluster.
func (g *Group) RemovePrimary(n *Node) error {
	id := g.id(n)
	g.Nodes = slices.DeleteFunc(g.Nodes, func(o *Node) bool { return o == n })
	for _, other := range g.Nodes {
		if _, err := other.Do("CLUSTER", "FORGET", id); err != nil {
			return err
		}
	}
	n.Kill()
	return g.Well(30 * time.Second)
}

func (g *Group) clusterInfo(n *Node, field string) string {
	reply, err := n.Do("CLUSTER", "INFO")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(reply.(string), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

// id is the name of a node in the cluster.
func (g *Group) id(n *Node) string {
	reply, err := n.Do("CLUSTER", "MYID")
	if err != nil {
		return ""
	}
	return reply.(string)
}

// ids are the nodes that a node knows, by address, without those in handshake.
func (g *Group) ids(n *Node) map[string]string {
	ids := map[string]string{}
	reply, err := n.Do("CLUSTER", "NODES")
	if err != nil {
		return ids
	}
	for line := range strings.SplitSeq(reply.(string), "\n") {
		f := strings.Fields(line)
		if len(f) > 7 && !strings.Contains(f[2], "handshake") && !strings.Contains(f[2], "noaddr") {
			host, _, _ := strings.Cut(f[1], ":")
			ids[host] = f[0]
		}
	}
	return ids
}

func (g *Group) refreshSlots() bool {
	for _, n := range g.Nodes {
		// A node that is no primary, or cut off, knows too little.
		if !n.Alive() || g.clusterInfo(n, "cluster_state") != "ok" {
			continue
		}
		reply, err := n.Do("CLUSTER", "SLOTS")
		list, ok := reply.([]any)
		if err != nil || !ok {
			continue
		}
		g.mutex.Lock()
		for _, item := range list {
			row := item.([]any)
			first, last := row[0].(int64), row[1].(int64)
			node := g.byPublicIP(row[2].([]any)[0].(string))
			for slot := first; slot <= last; slot++ {
				g.slots[slot] = node
			}
		}
		g.mutex.Unlock()
		return true
	}
	return false
}

// clusterWell: all nodes agree that all is well, and who serves what.
func (g *Group) clusterWell() bool {
	view := ""
	primaries, wanted := 0, 3
	for _, n := range g.Nodes {
		if n.alone {
			wanted++
		}
		if g.clusterInfo(n, "cluster_state") != "ok" || g.clusterInfo(n, "cluster_slots_ok") != "16384" {
			return false
		}
		reply, err := n.Do("CLUSTER", "NODES")
		if err != nil {
			return false
		}
		rows := map[string]string{}
		for line := range strings.SplitSeq(reply.(string), "\n") {
			f := strings.Fields(line)
			if len(f) < 8 {
				continue
			}
			if strings.Contains(f[2], "fail") || strings.Contains(f[2], "handshake") {
				return false
			}
			role := "slave"
			if strings.Contains(f[2], "master") {
				role = "master"
			}
			rows[f[0]] = role + " " + strings.Join(f[8:], " ")
		}
		all := fmt.Sprint(rows)
		if view == "" {
			view = all
		}
		if all != view {
			return false
		}
		if n.IsPrimary() {
			primaries++
			if !n.alone && n.Info("replication", "connected_slaves") == "0" {
				return false
			}
		} else if n.Info("replication", "master_link_status") != "up" {
			return false
		}
	}
	return primaries == wanted
}

// NodeAt is the node that announces this address, as in MOVED.
func (g *Group) NodeAt(address string) *Node {
	host, _, _ := strings.Cut(address, ":")
	return g.byPublicIP(host)
}

// Moved notes where a slot is served.
func (g *Group) Moved(slot int, n *Node) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if n != nil && slot >= 0 && slot < len(g.slots) {
		g.slots[slot] = n
	}
}

// leaves is the node from which a slot moves to another one.
func (g *Group) leaves(slot int, to *Node) (*Node, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	from := g.slots[slot]
	if from == nil || from == to {
		return nil, errors.New("the slot is there already")
	}
	return from, nil
}

// MoveSlot moves a slot key by key to another primary, as redis-cli does, and
// calls half way between the moves of the keys.
func (g *Group) MoveSlot(slot int, to *Node, half func()) error {
	from, err := g.leaves(slot, to)
	if err != nil {
		return err
	}
	text := strconv.Itoa(slot)
	if _, err := to.Do("CLUSTER", "SETSLOT", text, "IMPORTING", g.id(from)); err != nil {
		return err
	}
	if _, err := from.Do("CLUSTER", "SETSLOT", text, "MIGRATING", g.id(to)); err != nil {
		return err
	}
	half()
	for {
		reply, err := from.Do("CLUSTER", "GETKEYSINSLOT", text, "10")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			break
		}
		words := []string{"MIGRATE", to.IP, strconv.Itoa(g.port), "", "0", "2000", "REPLACE", "KEYS"}
		for _, key := range keys {
			words = append(words, key.(string))
		}
		if _, err := from.Do(words...); err != nil {
			return err
		}
	}
	for _, n := range append([]*Node{to, from}, g.Primaries()...) {
		if _, err := n.Do("CLUSTER", "SETSLOT", text, "NODE", g.id(to)); err != nil {
			return err
		}
	}
	g.Moved(slot, to)
	return nil
}

// MoveKeys moves a slot key by key, without a pause.
func (g *Group) MoveKeys(slot int, to *Node) error { return g.MoveSlot(slot, to, func() {}) }

// MigratesSlots says whether the servers can move slots atomically: Valkey from 9.0 on.
func (g *Group) MigratesSlots() bool {
	_, err := g.Nodes[0].Do("CLUSTER", "GETSLOTMIGRATIONS")
	return err == nil
}

// MigrateSlot moves a slot atomically to another primary.
func (g *Group) MigrateSlot(slot int, to *Node) error {
	from, err := g.leaves(slot, to)
	if err != nil {
		return err
	}
	text := strconv.Itoa(slot)
	if _, err := from.Do("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", text, text, "NODE", g.id(to)); err != nil {
		return err
	}
	failed := ""
	err = from.Until("the slot has moved", 20*time.Second, func() bool {
		reply, _ := from.Do("CLUSTER", "GETSLOTMIGRATIONS")
		jobs, _ := reply.([]any)
		if len(jobs) == 0 {
			return false
		}
		newest := fmt.Sprint(jobs[0])
		if strings.Contains(newest, "state failed") || strings.Contains(newest, "state cancelled") {
			failed = newest
		}
		return failed != "" || strings.Contains(newest, "state success")
	})
	if failed != "" {
		return errors.New("the migration failed: " + failed)
	}
	if err == nil {
		g.Moved(slot, to)
	}
	return err
}

// Elsewhere waits until other nodes serve what this dead node served.
func (n *Node) Elsewhere(g *Group) error {
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		if g.refreshSlots() && !slices.Contains(g.Primaries(), n) {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	return fmt.Errorf("nobody takes over from %s: %s", n.Name, g.describe())
}

// Slot is the slot of a key.
func Slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}
