// Package check judges a history: with Porcupine against the model of one lock,
// and by plain invariants. It sees nothing but the history.
package check

import (
	"time"

	"github.com/anishathalye/porcupine"

	"robustness/history"
)

// Violation is something that the contract excludes.
type Violation struct {
	// Name is the short name of the invariant.
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

// Verdict is what the checks found in one round.
type Verdict struct {
	Histories  int
	Legal      int
	Illegal    int
	Unknown    int
	Longest    int // calls in the longest history
	Violations []Violation
}

// Round checks one round.
func Round(round *history.Round, limit time.Duration) Verdict {
	var v Verdict
	for _, invariant := range []func(*history.Round) []Violation{
		exclusion, tokens, replies, stuckWaiters, order, lostHolds, servers,
	} {
		v.Violations = append(v.Violations, invariant(round)...)
	}
	for _, p := range split(round) {
		v.Histories++
		v.Longest = max(v.Longest, len(p.ops))
		result, name := judge(round, p, limit)
		switch result {
		case porcupine.Ok:
			v.Legal++
		case porcupine.Unknown:
			v.Unknown++
		default:
			v.Illegal++
			v.Violations = append(v.Violations, Violation{name, p.key, "Porcupine: no order of the calls explains the replies"})
		}
	}
	return v
}
