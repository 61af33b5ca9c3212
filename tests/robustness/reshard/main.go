// reshard lets real cluster clients of several languages take locks while slots move, primaries
// are killed and come and go, and tells how long each request was without an answer. See README.md.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"robustness/servers"
)

// The locks, in slots of their own.
var locks = []string{"orders", "stock", "prices", "menu", "seats", "mail", "jobs", "cart"}

// longest is when a request that has no answer yet has none at all.
const longest = 60 * time.Second

// change is something that happened to the cluster.
type change struct {
	kind       string
	start, end int64 // unix ms
}

// answer is the end of a request for a lock.
type answer struct {
	asked   int64 // unix ms
	took    float64
	outcome string // ok, lost: the hold ended before it was given back, timeout
}

type run struct {
	*servers.Group
	random  *rand.Rand
	changes []change
	added   *servers.Node
}

func main() {
	var plan servers.Plan
	var name, workers string
	var seconds, each int
	var seed uint64
	flag.StringVar(&plan.Engine, "server", "redis-server", "the server program")
	flag.StringVar(&name, "engine", "", "its name in the report")
	flag.StringVar(&plan.Module, "module", "", "the module")
	flag.StringVar(&plan.ClockSource, "clock", "", "the source of the servers' clock")
	flag.StringVar(&plan.Folder, "out", "", "where logs and answers are kept")
	flag.StringVar(&workers, "workers", "", "the workers, one command in a line")
	flag.IntVar(&each, "each", 3, "processes of each worker")
	flag.IntVar(&seconds, "time", 60, "seconds")
	flag.Uint64Var(&seed, "seed", uint64(time.Now().UnixNano()%1000), "of the changes")
	flag.Parse()
	plan.Topology, plan.Persistence = "cluster", "always"
	plan.Now = func() int64 { return time.Now().UnixMicro() }
	r := &run{random: rand.New(rand.NewPCG(seed, 0))}
	fmt.Printf("reshard: %s, seed %d, %d s\n", name, seed, seconds)
	ok, err := r.play(plan, strings.Split(strings.TrimSpace(workers), "\n"), each, time.Duration(seconds)*time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reshard:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// play runs the cluster, the workers and the changes, and reports.
func (r *run) play(plan servers.Plan, commands []string, each int, limit time.Duration) (bool, error) {
	if err := os.RemoveAll(plan.Folder); err != nil {
		return false, err
	}
	var err error
	r.Group, err = servers.Start(plan)
	if r.Group != nil {
		defer r.Stop()
	}
	if err != nil {
		return false, err
	}
	marks := filepath.Join(plan.Folder, "marks")
	if err := os.MkdirAll(marks, 0o755); err != nil {
		return false, err
	}
	workers := map[string]*exec.Cmd{}
	for _, command := range commands {
		language, words, _ := strings.Cut(command, " ")
		for i := range each {
			name := fmt.Sprintf("%s-%d", language, i+1)
			worker, err := r.work(name, strings.Fields(words), marks)
			if err != nil {
				return false, err
			}
			workers[name] = worker
		}
	}
	begun := time.Now()
	for err == nil && time.Since(begun) < limit {
		time.Sleep(time.Duration(1000+r.random.IntN(2000)) * time.Millisecond) // the clients at work
		err = r.change()
	}
	if err == nil && r.added != nil {
		err = r.strike("remove-node", r.removeNode)
	}
	time.Sleep(time.Second) // after the last change
	if err := os.WriteFile(filepath.Join(marks, "stop"), nil, 0o644); err != nil {
		return false, err
	}
	ok := r.await(workers)
	if err != nil {
		return false, err
	}
	return r.report(plan.Folder, time.Since(begun)) && ok, nil
}

// work starts a worker.
func (r *run) work(name string, words []string, marks string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(r.Folder, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	worker := exec.Command(words[0], append(words[1:], name)...)
	worker.Stdout, worker.Stderr = log, log
	worker.Env = append(os.Environ(),
		"RWLOCK_URL=redis://"+r.Nodes[0].Address(), "RWLOCK_LOCKS="+strings.Join(locks, " "), "RWLOCK_MARKS="+marks,
		"RWLOCK_ANSWERS="+filepath.Join(r.Folder, name+".answers"))
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return worker, worker.Start()
}

// await waits for the end of the workers. One that does not end has no answer.
func (r *run) await(workers map[string]*exec.Cmd) bool {
	ok := true
	for name, worker := range workers {
		ended := make(chan error, 1)
		go func() { ended <- worker.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				fmt.Printf("VIOLATION worker %s: %v, see its log in %s\n", name, err, r.Folder)
				ok = false
			}
		case <-time.After(longest + 10*time.Second):
			fmt.Printf("VIOLATION unanswered: worker %s does not end\n", name)
			_ = worker.Process.Kill()
			ok = false
		}
	}
	return ok
}

// change does something to the cluster, and waits until it is well again.
func (r *run) change() error {
	kinds := map[string]func() error{
		"move-slot": func() error { return r.move(r.MoveKeys) },
		"kill-primary": func() error {
			primary := r.primary(false)
			primary.Kill()
			if err := primary.Elsewhere(r.Group); err != nil {
				return err
			}
			return primary.Start()
		},
		"failover": func() error {
			primary := r.primary(false)
			var replicas []*servers.Node
			err := primary.Until("it has a replica", 10*time.Second, func() bool {
				replicas = r.Replicas(primary)
				return len(replicas) > 0
			})
			if err == nil {
				_, err = replicas[0].Do("CLUSTER", "FAILOVER")
			}
			if err == nil {
				// The server only begins with it.
				err = replicas[0].Until("it is the primary", 20*time.Second, replicas[0].IsPrimary)
			}
			return err
		},
	}
	if r.MigratesSlots() {
		kinds["move-slot-atomically"] = func() error { return r.move(r.MigrateSlot) }
	}
	if r.added == nil {
		kinds["add-node"] = r.addNode
	} else {
		kinds["remove-node"] = r.removeNode
	}
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[r.random.IntN(len(names))]
	return r.strike(name, kinds[name])
}

func (r *run) strike(kind string, do func() error) error {
	c := change{kind: kind, start: time.Now().UnixMilli()}
	err := do()
	if err == nil {
		err = r.Well(40 * time.Second)
	}
	c.end = time.Now().UnixMilli()
	r.changes = append(r.changes, c)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// primary is one that serves a lock; not the one that was added, unless that is wanted.
func (r *run) primary(also bool) *servers.Node {
	for {
		n := r.Primary(locks[r.random.IntN(len(locks))])
		if also || n != r.added {
			return n
		}
	}
}

// move moves the slot of a lock to another primary.
func (r *run) move(move func(int, *servers.Node) error) error {
	lock := locks[r.random.IntN(len(locks))]
	r.Refresh() // a busy machine may have brought an election that nobody asked for
	from := r.Primary(lock)
	others := slices.DeleteFunc(r.Primaries(), func(n *servers.Node) bool { return n == from })
	return move(servers.Slot(lock), others[r.random.IntN(len(others))])
}

// addNode adds a primary, to which the slots of some locks move.
func (r *run) addNode() error {
	n, err := r.AddPrimary()
	if err != nil {
		return err
	}
	r.added = n
	for _, i := range r.random.Perm(len(locks))[:3] {
		if err := r.anyMove()(servers.Slot(locks[i]), n); err != nil {
			return err
		}
	}
	return nil
}

// removeNode moves all slots of the added primary to others, and takes it out.
func (r *run) removeNode() error {
	n := r.added
	for _, lock := range locks {
		if r.Primary(lock) != n {
			continue
		}
		if err := r.anyMove()(servers.Slot(lock), r.primary(false)); err != nil {
			return err
		}
	}
	r.added = nil
	return r.RemovePrimary(n)
}

// anyMove is one of the ways to move a slot.
func (r *run) anyMove() func(int, *servers.Node) error {
	if r.MigratesSlots() && r.random.IntN(2) == 0 {
		return r.MigrateSlot
	}
	return r.MoveKeys
}

// report prints how long requests were without an answer, and the violations.
func (r *run) report(folder string, took time.Duration) bool {
	var answers []answer
	var violations []string
	counts := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(folder, "*.answers"))
	byLanguage := map[string]int{}
	for _, path := range files {
		language, _, _ := strings.Cut(filepath.Base(path), "-")
		found, wrong := read(path)
		byLanguage[language] += len(found)
		answers, violations = append(answers, found...), append(violations, wrong...)
	}
	for _, a := range answers {
		counts[a.outcome]++
		if a.outcome == "timeout" {
			violations = append(violations, fmt.Sprintf("unanswered: no grant within %s, asked at %d", longest, a.asked))
		}
	}
	kinds := map[string][]change{}
	for _, c := range r.changes {
		kinds[c.kind] = append(kinds[c.kind], c)
	}
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Printf("\n%-22s %6s %9s %9s %9s %9s   ms until the answer\n", "", "times", "answers", "p50", "p99", "longest")
	row := func(name string, times int, of []float64) {
		slices.Sort(of)
		at := func(q float64) float64 {
			if len(of) == 0 {
				return 0
			}
			return of[min(len(of)-1, int(q*float64(len(of))))]
		}
		fmt.Printf("%-22s %6d %9d %9.1f %9.1f %9.1f\n", name, times, len(of), at(0.5), at(0.99), at(1))
	}
	var all, calm []float64
	for _, a := range answers {
		all = append(all, a.took)
		if !slices.ContainsFunc(r.changes, a.during) {
			calm = append(calm, a.took)
		}
	}
	for _, name := range names {
		var of []float64
		for _, a := range answers {
			if slices.ContainsFunc(kinds[name], a.during) {
				of = append(of, a.took)
			}
		}
		row(name, len(kinds[name]), of)
	}
	row("between the changes", 0, calm)
	row("all", len(r.changes), all)
	fmt.Printf("\n%d answers in %.0f s (%v), by client %v, %d changes of the cluster\n", len(answers), took.Seconds(), counts, byLanguage, len(r.changes))
	for _, text := range violations {
		fmt.Println("VIOLATION", text)
	}
	fmt.Printf("%d violations\n", len(violations))
	return len(violations) == 0 && len(answers) > 0
}

// during says whether the request was under way while the change was.
func (a answer) during(c change) bool {
	return a.asked <= c.end && a.asked+int64(a.took) >= c.start
}

func read(path string) ([]answer, []string) {
	file, err := os.Open(path)
	if err != nil {
		return nil, []string{err.Error()}
	}
	defer file.Close()
	var answers []answer
	var wrong []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		words := strings.Fields(line)
		if text, is := strings.CutPrefix(line, "VIOLATION "); is || len(words) != 3 {
			wrong = append(wrong, text)
			continue
		}
		asked, err1 := strconv.ParseInt(words[0], 10, 64)
		took, err2 := strconv.ParseFloat(words[1], 64)
		if err1 != nil || err2 != nil {
			wrong = append(wrong, line)
			continue
		}
		answers = append(answers, answer{asked, took, words[2]})
	}
	return answers, wrong
}
