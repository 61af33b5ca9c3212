package faults

import (
	"time"

	"robustness/history"
)

func init() {
	// kill: SIGKILL and a restart from what is on disk. AOF always must lose nothing.
	register("kill", "single", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Killed, r.Lossy, r.Detail = true, true, f.Persistence != "always", f.Persistence
		f.primary.Kill()
		r.Struck = f.now()
		f.hold(1, 250)
		r.Restart = f.now()
		err := f.primary.Start()
		r.Undone = f.now()
		return err
	})
	// kill-primary: SIGKILL, another one is elected, the killed one comes back.
	register("kill-primary", "sentinel cluster", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Lossy = true, true
		f.primary.Kill()
		r.Struck = f.now()
		if err := f.await(30 * time.Second); err != nil {
			return err
		}
		return f.primary.Start()
	})
	// kill-replica: nobody must notice.
	register("kill-replica", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		replica := f.replica()
		if replica == nil {
			return nil
		}
		replica.Kill()
		r.Struck = f.now()
		f.hold(1, 250)
		err := replica.Start()
		r.Undone = f.now()
		return err
	})
}
