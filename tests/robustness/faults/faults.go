// Package faults is what happens to the servers and connections while the clients
// work: one at a time, undone before the next.
package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"robustness/history"
	"robustness/servers"
	"robustness/traffic"
)

// field is what a fault acts on.
type field struct {
	*servers.Group
	traffic *traffic.Traffic
	random  *rand.Rand
	now     func() int64
	// primary serves the locks of the round.
	primary *servers.Node
	key     string
}

// fault is one kind of them. strike does it and undoes it. It notes the times
// and what the fault may do to locks; Strike notes the rest.
type fault struct {
	name       string
	topologies string
	strike     func(*field, *history.Fault) error
}

var all []fault

// register is called once for each kind, by the file that has it.
func register(name, topologies string, strike func(*field, *history.Fault) error) {
	all = append(all, fault{name, topologies, strike})
}

const everywhere = "single sentinel cluster"

// Names lists the kinds that these servers can have.
func Names(g *servers.Group) []string {
	var names []string
	for _, f := range all {
		can := f.name != atomically || g.MigratesSlots()
		if can && strings.Contains(f.topologies, g.Topology) {
			names = append(names, f.name)
		}
	}
	return names
}

// Strike lets one kind of fault strike now, and returns when the servers are well
// again. As soon as the locks have a primary again after a fault that may have lost
// something, it calls look.
func Strike(name string, g *servers.Group, t *traffic.Traffic, random *rand.Rand, look func()) (history.Fault, error) {
	f := &field{Group: g, traffic: t, random: random, now: t.Now, key: t.Locks[0].Key}
	f.primary = g.Primary(f.key)
	record := history.Fault{Name: name, Start: t.Now()}
	for _, kind := range all {
		if kind.name != name {
			continue
		}
		if err := kind.strike(f, &record); err != nil {
			return record, fmt.Errorf("the fault %s: %w", name, err)
		}
		if record.Lossy {
			look()
		}
		err := g.Well(40 * time.Second)
		record.Struck = max(record.Struck, record.Start)
		record.Undone = max(record.Undone, record.Struck)
		record.End = t.Now()
		if !record.Harmless {
			record.End += 200_000 // clients find the way back
		}
		return record, err
	}
	return record, fmt.Errorf("no fault %q", name)
}

// hold lets a fault act for a random time.
func (f *field) hold(from, to int) {
	time.Sleep(time.Duration(from+f.random.IntN(to-from)) * time.Millisecond)
}

// replica is one of the primary's, or nil.
func (f *field) replica() *servers.Node {
	replicas := f.Replicas(f.primary)
	if len(replicas) == 0 {
		return nil
	}
	return replicas[f.random.IntN(len(replicas))]
}

// await waits until the locks of the round have another primary.
func (f *field) await(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		f.Refresh()
		if p := f.Primary(f.key); p != nil && p != f.primary && p.Alive() && p.IsPrimary() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("no other primary within %s", limit)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}
