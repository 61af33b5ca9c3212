// Takes locks of a cluster until it is told to stop, checks that nobody is in who must not
// be, and notes how long each answer took: `worker <name>`. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"rwlock-example/rwlock"
)

var (
	name    = os.Args[1]
	marks   = os.Getenv("RWLOCK_MARKS")
	answers *os.File
)

func main() {
	var err error
	answers, err = os.Create(os.Getenv("RWLOCK_ANSWERS"))
	check(err)
	options, err := redis.ParseURL(os.Getenv("RWLOCK_URL"))
	check(err)
	locks := rwlock.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}}), name)
	defer locks.Close()
	all := strings.Fields(os.Getenv("RWLOCK_LOCKS"))
	for !exists("stop") {
		lock := all[rand.IntN(len(all))]
		options := rwlock.Options{Wait: time.Minute, Lease: 3 * time.Second, PlainLease: rand.IntN(2) == 0}
		write := rand.Float64() < 0.4
		asked := time.Now()
		var hold *rwlock.Hold
		if options.Fence = write; write {
			hold, err = locks.Lock(context.Background(), lock, options)
		} else {
			hold, err = locks.RLock(context.Background(), lock, options)
		}
		took := time.Since(asked)
		if err == nil {
			if write {
				asWriter(lock, hold.Token)
			} else {
				asReader(lock)
			}
			err = hold.Unlock()
		}
		outcome := "ok"
		switch {
		case errors.Is(err, rwlock.ErrTimedOut):
			outcome = "timeout"
		case errors.Is(err, rwlock.ErrNotHeld):
			outcome = "lost"
		default:
			check(err)
		}
		note("%d %.1f %s", asked.UnixMilli(), float64(took.Microseconds())/1000, outcome)
	}
}

func asWriter(lock string, token int64) {
	mark, tokens := filepath.Join(marks, lock+".writer"), filepath.Join(marks, lock+".token")
	file, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		note("VIOLATION %s: another writer beside %s", lock, name)
		return
	}
	file.Close()
	if readers, _ := filepath.Glob(filepath.Join(marks, lock+".reader.*")); len(readers) > 0 {
		note("VIOLATION %s: %v beside the writer %s", lock, readers, name)
	}
	text, _ := os.ReadFile(tokens)
	last, _ := strconv.ParseInt(string(text), 10, 64)
	if token <= last {
		note("VIOLATION %s: token %d after %d", lock, token, last)
	}
	check(os.WriteFile(tokens, []byte(strconv.FormatInt(token, 10)), 0o644))
	work()
	check(os.Remove(mark))
}

func asReader(lock string) {
	mark := lock + ".reader." + name
	check(os.WriteFile(filepath.Join(marks, mark), nil, 0o644))
	if exists(lock + ".writer") {
		note("VIOLATION %s: a writer beside the reader %s", lock, name)
	}
	work()
	check(os.Remove(filepath.Join(marks, mark)))
}

func exists(mark string) bool {
	_, err := os.Stat(filepath.Join(marks, mark))
	return err == nil
}

func work() { time.Sleep(time.Duration(rand.IntN(3001)) * time.Microsecond) }

func note(format string, values ...any) { fmt.Fprintf(answers, format+"\n", values...) }

func check(err error) {
	if err != nil {
		note("ERROR %v", err)
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
