// Robustness plays traffic on a server or a group of servers with the module,
// lets faults strike, and checks what the clients saw. See README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"robustness/check"
	"robustness/faults"
	"robustness/history"
	"robustness/servers"
)

// options are what the command line says.
type options struct {
	engine, name, module, topology string
	clock, out, replay             string
	only                           string
	seed                           uint64
	seconds                        int
	clients                        int
	first, unknown                 bool
}

func main() {
	var o options
	flag.StringVar(&o.engine, "server", "", "the server's executable")
	flag.StringVar(&o.name, "engine", "", "what to call it in the report")
	flag.StringVar(&o.module, "module", "", "librwlock.so")
	flag.StringVar(&o.topology, "topology", "single", "single, sentinel or cluster")
	flag.StringVar(&o.clock, "clock", "", "clock.c, which is preloaded into the servers")
	flag.StringVar(&o.out, "out", "", "the folder for what failed")
	flag.StringVar(&o.replay, "replay", "", "check the history in this folder again, without any server")
	flag.StringVar(&o.only, "fault", "", "only this kind of fault")
	flag.Uint64Var(&o.seed, "seed", 0, "0: a random one")
	flag.IntVar(&o.seconds, "time", 60, "seconds of traffic")
	flag.IntVar(&o.clients, "clients", 24, "clients at a time")
	flag.BoolVar(&o.first, "first", false, "stop at the first violation")
	flag.BoolVar(&o.unknown, "keep-unknown", false, "keep rounds of which Porcupine could not tell in time")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	var ok bool
	var err error
	if o.replay != "" {
		ok, err = replay(o.replay)
	} else {
		ok, err = soak(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// soak is one run: servers, then one round after the other until the time is up.
func soak(o options) (bool, error) {
	random := rand.New(rand.NewPCG(o.seed, 0))
	run := &run{options: o, random: random, started: time.Now()}
	plan := servers.Plan{
		Now: run.now,

		Engine: o.engine, Module: o.module, Topology: o.topology, ClockSource: o.clock,
		Persistence: []string{"always", "everysec", "rdb"}[o.seed%3],
		Folder:      filepath.Join(o.out, fmt.Sprintf("run-%s-%s-%d", o.name, o.topology, o.seed)),
	}
	fmt.Printf("soak: %s, %s, persistence %s, seed %d, %d s\n", o.name, o.topology, plan.Persistence, o.seed, o.seconds)
	if err := os.RemoveAll(plan.Folder); err != nil {
		return false, err
	}
	group, err := servers.Start(plan)
	if group != nil {
		defer group.Stop()
	}
	if err != nil {
		return false, err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	total := newReport(o, plan.Persistence)
	names := faults.Names(group)
	if o.only != "" {
		names = []string{o.only}
	}
	run.group, run.begun = group, time.Now()
	run.watchStalls()
	var order []string
	for number := 1; time.Since(run.begun) < time.Duration(o.seconds)*time.Second && interrupted.Err() == nil; number++ {
		// Each kind in turn, in an order of the seed; every seventh round has none.
		if len(order) == 0 {
			order = append(order, names...)
			for range len(names)/6 + 1 {
				order = append(order, "")
			}
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		round, err := run.round(number, order[0])
		order = order[1:]
		if err != nil {
			round.Crashes = append(round.Crashes, "no recovery: "+err.Error())
		}
		verdict := check.Round(round, 5*time.Second)
		total.add(round, verdict)
		for _, v := range verdict.Violations {
			fmt.Printf("VIOLATION %s: %s: %s (round %d, fault %q, after %.0f s)\n", v.Name, v.Key, v.Text, number, faultOf(round), time.Since(run.begun).Seconds())
		}
		if len(verdict.Violations) > 0 {
			folder := filepath.Join(o.out, fmt.Sprintf("failed-%s-%s-%d-%d", o.name, o.topology, o.seed, number))
			if err := keep(folder, round, verdict, group.Folder); err != nil {
				return false, err
			}
			fmt.Printf("kept in %s: make soak REPLAY=%s\n", folder, folder)
		}
		if o.unknown && verdict.Unknown > 0 {
			if err := round.Save(filepath.Join(o.out, fmt.Sprintf("unknown-%s-%s-%d-%d", o.name, o.topology, o.seed, number))); err != nil {
				return false, err
			}
		}
		if err != nil || o.first && len(verdict.Violations) > 0 {
			break
		}
	}
	total.print(time.Since(run.begun))
	return total.Violations == 0, nil
}

func faultOf(round *history.Round) string {
	for _, f := range round.Faults {
		return f.Name + " " + f.Detail
	}
	return "none"
}

// replay checks a stored history again.
func replay(folder string) (bool, error) {
	round, err := history.Load(folder)
	if err != nil {
		return false, err
	}
	verdict := check.Round(round, time.Minute)
	for _, v := range verdict.Violations {
		fmt.Printf("VIOLATION %s: %s: %s\n", v.Name, v.Key, v.Text)
	}
	fmt.Printf("%d histories: %d legal, %d illegal, %d unknown\n", verdict.Histories, verdict.Legal, verdict.Illegal, verdict.Unknown)
	return len(verdict.Violations) == 0, draw(folder, round, verdict)
}
