package faults

import (
	"fmt"
	"strconv"

	"robustness/history"
)

func init() {
	// pause: CLIENT PAUSE of writes or of everything.
	register("pause", everywhere, func(f *field, r *history.Fault) error {
		r.Detail = []string{"WRITE", "ALL"}[f.random.IntN(2)]
		ms := 100 + f.random.IntN(500)
		if _, err := f.primary.Do("CLIENT", "PAUSE", strconv.Itoa(ms), r.Detail); err != nil {
			return err
		}
		f.hold(ms, ms+50)
		r.Struck = f.now()
		return nil
	})
	// memory: the server is over its limit, and refuses acquisitions.
	register("memory", everywhere, func(f *field, r *history.Fault) error {
		if _, err := f.primary.Do("CONFIG", "SET", "maxmemory", "1mb"); err != nil {
			return err
		}
		f.hold(100, 500)
		_, err := f.primary.Do("CONFIG", "SET", "maxmemory", "0")
		r.Struck = f.now()
		return err
	})
	// flush: FLUSHALL ends all holds.
	register("flush", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		op := history.Op{Client: -1, Command: "flushall", Call: f.now(), Outcome: history.OK}
		_, err := f.primary.Do("FLUSHALL")
		op.Return = f.now()
		f.traffic.Record(op)
		r.Struck = op.Return
		return err
	})
	// save: a snapshot, or a new AOF.
	register("save", everywhere, func(f *field, r *history.Fault) error {
		r.Detail = []string{"BGSAVE", "BGREWRITEAOF"}[f.random.IntN(2)]
		// It may refuse, as one may be under way.
		_, _ = f.primary.Do(r.Detail)
		r.Struck = f.now()
		return nil
	})
	// settings: each of rwlock's settings gets another value for a while.
	register("settings", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless, r.Settings = true, true
		type setting struct{ name, usual, other string }
		list := []setting{
			{"policy", "fifo", []string{"prefer-readers", "prefer-writers"}[f.random.IntN(2)]},
			{"deadlock-detection", "yes", "no"}, {"max-waiters", "100000", "2"}, {"fence-ttl", "604800000", "50"},
			{"events", "redisson", []string{"owner", "all", "none"}[f.random.IntN(3)]}, {"cluster-publish", "sharded", "global"},
			{"log-slower-than", "1000", []string{"-1", "0"}[f.random.IntN(2)]}, {"log-holds-over", "60000", "0"}, {"log-max-len", "128", []string{"0", "2"}[f.random.IntN(2)]},
		}
		set := func(s setting, value string) error {
			for _, n := range f.Nodes {
				if _, err := n.Do("CONFIG", "SET", "rwlock."+s.name, value); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
			return nil
		}
		f.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:1+f.random.IntN(3)]
		for _, s := range list {
			r.Detail += s.name + "=" + s.other + " "
			if err := set(s, s.other); err != nil {
				return err
			}
		}
		f.hold(300, 900)
		for _, s := range list {
			if err := set(s, s.usual); err != nil {
				return err
			}
		}
		r.Struck = f.now()
		return nil
	})
}
