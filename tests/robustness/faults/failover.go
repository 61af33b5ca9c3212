package faults

import (
	"strconv"
	"time"

	"robustness/history"
)

func init() {
	// handover: FAILOVER, in which the old primary waits for the new one. It must
	// lose nothing. Half of the time the replica lags behind when it begins.
	register("handover", "single", func(f *field, r *history.Fault) error {
		r.SessionsEnd = true
		replica := f.replica()
		if f.random.IntN(2) == 0 {
			f.Links.Cut(replica.Name, f.primary.Name)
			f.hold(200, 600)
			f.Links.Heal()
		}
		if _, err := f.primary.Do("FAILOVER", "TO", replica.PublicIP, strconv.Itoa(replica.Port), "TIMEOUT", "5000"); err != nil {
			return err
		}
		err := f.await(20 * time.Second)
		r.Struck = f.now()
		f.rewrite()
		return err
	})
	// demote: an operator makes the replica the primary and the primary its replica,
	// without a pause. Clients wait and hold sessions meanwhile.
	register("demote", "single", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Lossy = true, true
		replica := f.replica()
		port := strconv.Itoa(replica.Port)
		if _, err := f.primary.Do("REPLICAOF", replica.PublicIP, port); err != nil {
			return err
		}
		// For a while there is no primary at all: nothing may be granted.
		f.hold(10, 200)
		if _, err := replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
			return err
		}
		r.Struck = f.now()
		f.rewrite()
		return f.await(20 * time.Second)
	})
	// sentinel-failover: an administrator asks for it.
	register("sentinel-failover", "sentinel", func(f *field, r *history.Fault) error {
		r.SessionsEnd, r.Lossy = true, true
		if _, err := f.Sentinels[0].Do("SENTINEL", "FAILOVER", "soak"); err != nil {
			return err
		}
		r.Struck = f.now()
		return f.await(30 * time.Second)
	})
	// cluster-failover: CLUSTER FAILOVER, which waits for the replica. It must lose
	// nothing.
	register("cluster-failover", "cluster", func(f *field, r *history.Fault) error {
		r.SessionsEnd = true
		replica := f.replica()
		if f.random.IntN(2) == 0 {
			f.Links.Cut(replica.Name, f.primary.Name)
			f.hold(100, 400)
			f.Links.Heal()
		}
		if _, err := replica.Do("CLUSTER", "FAILOVER"); err != nil {
			return err
		}
		err := f.await(30 * time.Second)
		r.Struck = f.now()
		return err
	})
}

// rewrite keeps the new roles over a restart.
func (f *field) rewrite() {
	for _, n := range f.Nodes {
		_, _ = n.Do("CONFIG", "REWRITE")
	}
}
