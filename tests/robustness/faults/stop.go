package faults

import (
	"syscall"
	"time"

	"robustness/history"
)

func init() {
	// stop: SIGSTOP of the primary, shorter than an election.
	register("stop", everywhere, func(f *field, r *history.Fault) error {
		f.primary.Signal(syscall.SIGSTOP)
		f.hold(50, 500)
		f.primary.Signal(syscall.SIGCONT)
		r.Struck = f.now()
		return nil
	})
	// stop-long: long enough that another one is elected. The old one wakes up and
	// thinks for a moment that it is still the primary.
	register("stop-long", "sentinel cluster", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Lossy = true, true
		f.primary.Signal(syscall.SIGSTOP)
		r.Struck = f.now()
		// Looking at a stopped server would take until a timeout.
		err := f.await(30 * time.Second)
		f.primary.Signal(syscall.SIGCONT)
		return err
	})
	register("stop-replica", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		if replica := f.replica(); replica != nil {
			replica.Signal(syscall.SIGSTOP)
			f.hold(50, 500)
			replica.Signal(syscall.SIGCONT)
		}
		r.Struck = f.now()
		return nil
	})
	// hang-clients: half of the clients stand still, with what they hold.
	register("hang-clients", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		f.traffic.Hang(12)
		f.hold(200, 800)
		f.traffic.Hang(0)
		r.Struck = f.now()
		return nil
	})
}
