package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"robustness/check"
	"robustness/history"
)

// faultTotal is what a report says about one kind of fault.
type faultTotal struct {
	Struck int `json:"struck"`
	// NextGrant is the longest time, in ms, from the end of the fault to the next
	// grant that was asked for after it. An election is part of it.
	NextGrant float64 `json:"next_grant_ms"`
}

// report adds up the rounds of a run. It is printed as a table for people, and as
// a line of JSON for programs.
type report struct {
	Engine      string                    `json:"engine"`
	Topology    string                    `json:"topology"`
	Persistence string                    `json:"persistence"`
	Seed        uint64                    `json:"seed"`
	Seconds     float64                   `json:"seconds"`
	Rounds      int                       `json:"rounds"`
	Operations  int                       `json:"operations"`
	Commands    map[string]map[string]int `json:"commands"`
	Faults      map[string]*faultTotal    `json:"faults"`
	Histories   int                       `json:"histories"`
	Legal       int                       `json:"legal"`
	Illegal     int                       `json:"illegal"`
	Unknown     int                       `json:"unknown"`
	Longest     int                       `json:"longest_history"`
	Stalls      int                       `json:"stalls"`
	LossyFaults int                       `json:"lossy_faults"`
	HeldBefore  int                       `json:"held_before_lossy_faults"`
	LostHolds   int                       `json:"lost_holds"`
	Violations  int                       `json:"violations"`
	ByName      map[string]int            `json:"violations_by_name"`
}

func newReport(o options, persistence string) *report {
	return &report{
		Engine: o.name, Topology: o.topology, Persistence: persistence, Seed: o.seed,
		Commands: map[string]map[string]int{}, Faults: map[string]*faultTotal{}, ByName: map[string]int{},
	}
}

func (r *report) add(round *history.Round, v check.Verdict) {
	r.Rounds++
	for _, op := range round.Ops {
		if op.Command == "close" {
			continue
		}
		name := op.Command
		if op.Replica {
			name += " (replica)"
		}
		if r.Commands[name] == nil {
			r.Commands[name] = map[string]int{}
		}
		r.Commands[name][op.Outcome]++
		r.Operations++
	}
	for _, f := range round.Faults {
		t := r.Faults[f.Name]
		if t == nil {
			t = new(faultTotal)
			r.Faults[f.Name] = t
		}
		t.Struck++
		if next := nextGrant(round, f.Undone); next > 0 {
			t.NextGrant = max(t.NextGrant, float64(next)/1000)
		}
		if f.Lossy {
			r.LossyFaults++
			held, lost := check.Losses(round, f)
			r.HeldBefore += held
			r.LostHolds += lost
		}
	}
	r.Stalls += len(round.Stalls)
	r.Histories += v.Histories
	r.Legal += v.Legal
	r.Illegal += v.Illegal
	r.Unknown += v.Unknown
	r.Longest = max(r.Longest, v.Longest)
	r.Violations += len(v.Violations)
	for _, x := range v.Violations {
		r.ByName[x.Name]++
	}
}

// nextGrant is how long after that time the first grant came that was asked for
// after it.
func nextGrant(round *history.Round, since int64) int64 {
	first := int64(0)
	for _, op := range round.Ops {
		taken := op.Command == "rlock" || op.Command == "wlock" || op.Command == "mlock"
		if taken && op.Outcome == history.OK && op.Call >= since && (first == 0 || op.Return < first) {
			first = op.Return
		}
	}
	return first - since
}

func (r *report) print(took time.Duration) {
	r.Seconds = took.Seconds()
	outcomes := []string{history.OK, history.Refused, history.NotHeld, history.Failed, history.Lost}
	fmt.Printf("\n%-18s", "command")
	for _, o := range outcomes {
		fmt.Printf("%10s", o)
	}
	fmt.Println()
	for _, name := range slices.Sorted(maps.Keys(r.Commands)) {
		fmt.Printf("%-18s", name)
		for _, o := range outcomes {
			fmt.Printf("%10d", r.Commands[name][o])
		}
		fmt.Println()
	}
	fmt.Printf("\n%-18s%10s%26s\n", "fault", "struck", "longest to next grant, ms")
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Printf("%-18s%10d%26.1f\n", name, r.Faults[name].Struck, r.Faults[name].NextGrant)
	}
	fmt.Printf("\n%d operations in %d rounds, %.0f s; %d stalls of the machine\n", r.Operations, r.Rounds, r.Seconds, r.Stalls)
	fmt.Printf("Porcupine: %d histories, %d legal, %d illegal, %d unknown; the longest has %d calls\n", r.Histories, r.Legal, r.Illegal, r.Unknown, r.Longest)
	fmt.Printf("where loss is allowed: %d faults, %d of %d holds lost\n", r.LossyFaults, r.LostHolds, r.HeldBefore)
	if r.Violations == 0 {
		fmt.Println("no violation")
	} else {
		fmt.Println("VIOLATIONS:", r.ByName)
	}
	line, _ := json.Marshal(r)
	fmt.Println(string(line))
}
