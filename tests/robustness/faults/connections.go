package faults

import (
	"fmt"
	"strings"

	"robustness/history"
)

func init() {
	// client-kill: the server closes the connections of all clients.
	register("client-kill", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		for range 1 + f.random.IntN(2) {
			n, err := f.primary.Do("CLIENT", "KILL", "TYPE", "normal")
			if err != nil {
				return err
			}
			r.Detail += fmt.Sprint(n, " ")
			f.hold(1, 300)
		}
		r.Struck = f.now()
		return nil
	})
	// reset: the network breaks some of them.
	register("reset", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		for range 1 + f.random.IntN(3) {
			n := f.Links.Reset(f.primary.Name, func() bool { return f.random.IntN(2) == 0 })
			r.Detail += fmt.Sprint(n, " ")
			f.hold(1, 100)
		}
		r.Struck = f.now()
		return nil
	})
	// unblock: CLIENT UNBLOCK of clients that wait.
	register("unblock", everywhere, func(f *field, r *history.Fault) error {
		r.Harmless = true
		for range 1 + f.random.IntN(3) {
			list, err := f.primary.Do("CLIENT", "LIST", "TYPE", "normal")
			if err != nil {
				return err
			}
			for line := range strings.SplitSeq(list.(string), "\n") {
				var id string
				blocked := false
				for word := range strings.FieldsSeq(line) {
					if name, value, _ := strings.Cut(word, "="); name == "id" {
						id = value
					} else if name == "flags" {
						blocked = strings.Contains(value, "b")
					}
				}
				if blocked && f.random.IntN(2) == 0 {
					how := []string{"TIMEOUT", "ERROR"}[f.random.IntN(2)]
					if _, err := f.primary.Do("CLIENT", "UNBLOCK", id, how); err != nil {
						return err
					}
				}
			}
			f.hold(1, 100)
		}
		r.Struck = f.now()
		return nil
	})
}
