package faults

import (
	"robustness/history"
	"robustness/servers"
)

// atomically is the fault that only some servers have.
const atomically = "move-slot-atomically"

func init() {
	// move-slot: the slot of the locks moves to another primary, key by key, and
	// half of the time back again.
	register("move-slot", "cluster", func(f *field, r *history.Fault) error {
		// MIGRATE sends the time that a key has left, not its end.
		r.ClockError = 100_000
		return f.moveAndBack(r, func(slot int, to *servers.Node) error {
			return f.MoveSlot(slot, to, func() { f.hold(1, 150) })
		})
	})
	// move-slot-atomically: the same with CLUSTER MIGRATESLOTS, all keys in one step.
	register(atomically, "cluster", func(f *field, r *history.Fault) error {
		return f.moveAndBack(r, f.MigrateSlot)
	})
}

// moveAndBack moves the slot of the locks to another primary, half of the time back.
func (f *field) moveAndBack(r *history.Fault, move func(int, *servers.Node) error) error {
	r.Moves = true
	slot := servers.Slot(f.key)
	var to *servers.Node
	for _, n := range f.Primaries() {
		if n != f.primary && (to == nil || f.random.IntN(2) == 0) {
			to = n
		}
	}
	if err := move(slot, to); err != nil {
		return err
	}
	if f.random.IntN(2) == 0 {
		f.hold(1, 300)
		if err := move(slot, f.primary); err != nil {
			return err
		}
	}
	r.Struck = f.now()
	return nil
}
