package faults

import (
	"fmt"

	"robustness/history"
)

func init() {
	// clock-step: the wall clock of all servers jumps. The next jump goes the other
	// way, so that the clock stays near the true one.
	register("clock-step", everywhere, func(f *field, r *history.Fault) error {
		ms := int64(100 + f.random.IntN(700))
		if f.random.IntN(2) == 0 {
			ms = -ms
		}
		if ahead := f.Clock.Ahead(); ahead != 0 {
			ms = -ahead
		}
		f.Clock.Step(ms)
		r.Struck = f.now()
		r.ClockError, r.Detail = max(ms, -ms)*1000, fmt.Sprint(ms, " ms")
		return nil
	})
}
