package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"robustness/check"
	"robustness/faults"
	"robustness/history"
	"robustness/resp"
	"robustness/servers"
	"robustness/traffic"
)

// clockError bounds, in µs, how far the servers' clock and ours can be apart
// within a round on one machine, with the rounding to ms of both.
const clockError = 5_000

// run is what all rounds of a run share.
type run struct {
	options
	group   *servers.Group
	random  *rand.Rand
	started time.Time // when the clock of the histories began
	begun   time.Time // when the servers were there
	mutex   sync.Mutex
	stalls  []history.Span
}

// now is the clock of all histories: it only goes forward.
func (r *run) now() int64 { return time.Since(r.started).Microseconds() }

// watchStalls notes when this program got no processor. Then the servers may not
// have got one either.
func (r *run) watchStalls() {
	go func() {
		for last := r.now(); ; {
			time.Sleep(5 * time.Millisecond)
			now := r.now()
			if now-last > 60_000 {
				r.mutex.Lock()
				r.stalls = append(r.stalls, history.Span{Start: last, End: now})
				r.mutex.Unlock()
			}
			last = now
		}
	}()
}

// round plays some seconds of traffic, in which at most one kind of fault strikes.
func (r *run) round(number int, fault string) (*history.Round, error) {
	round := &history.Round{
		Seed: r.seed, Round: number, Engine: r.name, Topology: r.topology, Persistence: r.group.Persistence,
		ClockError: clockError,
	}
	wall, begin := time.Now(), r.now()
	clients := traffic.Start(r.group, r.now, r.seed, number, r.clients)
	r.rest(400, 1000)
	key := clients.Locks[0].Key
	primary := r.group.Primary(key)
	var err error
	if fault != "" {
		var f history.Fault
		f, err = faults.Strike(fault, r.group, clients, r.random, func() { round.After = r.look(clients) })
		round.Faults = append(round.Faults, f)
	}
	if err == nil {
		r.rest(1500, 2000)
	}
	round.Ops = clients.Stop()
	r.group.Refresh()
	if !meant(round.Faults) && r.group.Primary(key) != primary {
		// The servers held an election that no fault asked for, as on a machine that is
		// too busy. What it did is not known: nothing before its end counts.
		round.Faults = append(round.Faults, history.Fault{
			Name: "unasked-election", Start: begin, Struck: begin, Undone: begin, End: r.now(), Lossy: true, SessionsEnd: true,
		})
	}
	// The machine's own clock may be set, too.
	if drift := (time.Now().Round(0).Sub(wall.Round(0)) - time.Since(wall)).Microseconds(); drift > 1000 || drift < -1000 {
		round.ClockError += max(drift, -drift)
	}
	r.mutex.Lock()
	round.Stalls, r.stalls = r.stalls, nil
	r.mutex.Unlock()
	round.Finish()
	if err == nil {
		keys := make([]string, 0, len(clients.Locks))
		for _, lock := range clients.Locks {
			keys = append(keys, lock.Key)
		}
		for _, d := range r.group.Compare(keys) {
			round.Differences = append(round.Differences, history.Difference{Key: d[0], Primary: d[1], Replica: d[2]})
		}
	}
	for _, n := range append(r.group.Nodes, r.group.Sentinels...) {
		round.Crashes = append(round.Crashes, n.Complaints()...)
		if !n.Alive() {
			round.Crashes = append(round.Crashes, n.Name+" ended by itself")
		}
	}
	return round, err
}

// meant says whether a fault was to give the locks another primary.
func meant(faults []history.Fault) bool {
	return slices.ContainsFunc(faults, func(f history.Fault) bool { return f.SessionsEnd || f.Moves })
}

func (r *run) rest(from, to int) {
	time.Sleep(time.Duration(from+r.random.IntN(to-from)) * time.Millisecond)
}

// look asks what the servers have, after a fault that may have lost something.
func (r *run) look(clients *traffic.Traffic) map[string]history.Look {
	after := map[string]history.Look{}
	for _, lock := range clients.Locks {
		reply, err := r.group.Primary(lock.Key).Do("RWLOCK.INSPECT", lock.Key)
		if err == nil {
			after[lock.Key] = history.Look{At: r.now(), View: traffic.View(resp.Map(reply))}
		}
	}
	return after
}

// keep stores a failed round, with the ends of the servers' logs.
func keep(folder string, round *history.Round, verdict check.Verdict, logs string) error {
	if err := round.Save(folder); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(logs, "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), text[max(0, len(text)-50_000):], 0o644); err != nil {
			return err
		}
	}
	return draw(folder, round, verdict)
}

// draw writes what was violated, and a picture of each lock that Porcupine found
// guilty.
func draw(folder string, round *history.Round, verdict check.Verdict) error {
	text := ""
	drawn := map[string]bool{}
	for _, v := range verdict.Violations {
		text += fmt.Sprintf("%s: %s: %s\n", v.Name, v.Key, v.Text)
		if v.Key != "" && !drawn[v.Key] {
			drawn[v.Key] = true
			if err := check.Draw(round, v.Key, filepath.Join(folder, "lock-"+v.Key[max(0, len(v.Key)-1):])); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(folder, "violations.txt"), []byte(text), 0o644)
}
