package faults

import (
	"time"

	"robustness/history"
	"robustness/servers"
)

func init() {
	// cut-clients: no client reaches the primary for a while.
	register("cut-clients", everywhere, func(f *field, r *history.Fault) error {
		f.Links.Cut(servers.Clients, f.primary.Name)
		f.hold(100, 600)
		f.Links.Heal()
		r.Struck = f.now()
		return nil
	})
	// cut-replicas: the replicas fall behind.
	register("cut-replicas", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		for _, n := range f.Replicas(f.primary) {
			f.Links.Cut(n.Name, f.primary.Name)
		}
		f.hold(100, 700)
		f.Links.Heal()
		r.Struck = f.now()
		return nil
	})
	// cut-sentinel: one of three sees nobody.
	register("cut-sentinel", "sentinel", func(f *field, r *history.Fault) error {
		r.Harmless = true
		lonely := f.Sentinels[f.random.IntN(len(f.Sentinels))]
		for _, n := range append(f.Nodes, f.Sentinels...) {
			f.Links.Cut(lonely.Name, n.Name)
		}
		f.hold(300, 1500)
		f.Links.Heal()
		r.Struck = f.now()
		return nil
	})
	// split: clients still reach the primary, but no server does: another one is
	// elected, and both grant.
	register("split", "sentinel cluster", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Lossy = true, true
		for _, n := range append(f.Nodes, f.Sentinels...) {
			if n != f.primary {
				f.Links.Cut(n.Name, f.primary.Name)
			}
		}
		r.Struck = f.now()
		err := f.await(30 * time.Second)
		f.Links.Heal()
		return err
	})
}
