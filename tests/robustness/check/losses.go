package check

import (
	"slices"

	"robustness/history"
)

// Losses counts, for a fault that may lose acknowledged writes: the holds that
// surely lived when it struck and would still live when we looked, and how many
// of them were gone. Holds that their owner may have given back do not count.
func Losses(round *history.Round, fault history.Fault) (held, lost int) {
	for key, ops := range perKey(round) {
		look, ok := round.After[key]
		if !ok {
			continue
		}
		for _, s := range certain(round, key, ops) {
			if s.from >= fault.Start || s.to != fault.Start || s.due <= look.At {
				continue
			}
			if slices.ContainsFunc(ops, func(o *history.Op) bool {
				return (o.Owner == s.owner && (releases(o) || o.Session) || clears(o)) && o.Return >= fault.Start && o.Call <= look.At
			}) {
				continue
			}
			held++
			if !slices.ContainsFunc(look.View.Holders, func(h history.Holder) bool { return h.Owner == s.owner }) {
				lost++
			}
		}
	}
	return held, lost
}
