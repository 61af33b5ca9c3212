package faults

import (
	"robustness/history"
	"robustness/servers"
)

func init() {
	// move-slot: the slot of the locks moves to another primary, key by key, and
	// half of the time back again.
	register("move-slot", "cluster", func(f *field, r *history.Fault) error {
		r.Moves = true
		// MIGRATE sends the time that a key has left, not its end.
		r.ClockError = 100_000
		slot := servers.Slot(f.key)
		var to *servers.Node
		for _, n := range f.Primaries() {
			if n != f.primary && (to == nil || f.random.IntN(2) == 0) {
				to = n
			}
		}
		if err := f.MoveSlot(slot, to, func() { f.hold(1, 150) }); err != nil {
			return err
		}
		if f.random.IntN(2) == 0 {
			f.hold(1, 300)
			if err := f.MoveSlot(slot, f.primary, func() { f.hold(1, 150) }); err != nil {
				return err
			}
		}
		r.Struck = f.now()
		return nil
	})
}
