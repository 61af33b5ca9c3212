// Readers and writers in processes of their own, on one lock, as a timeline.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"rwlock-example/rwlock"
)

func main() {
	if len(os.Args) == 3 {
		millis, _ := strconv.ParseInt(os.Args[2], 10, 64)
		take(os.Args[1], time.UnixMilli(millis))
		return
	}
	start := strconv.FormatInt(time.Now().UnixMilli(), 10)
	var processes []*exec.Cmd
	for _, who := range []string{"reader-1", "reader-2", "reader-3", "writer-1", "writer-2"} {
		process := exec.Command(os.Args[0], who, start)
		process.Stdout, process.Stderr = os.Stdout, os.Stderr
		check(process.Start())
		processes = append(processes, process)
	}
	for _, process := range processes {
		check(process.Wait())
	}
}

func take(who string, start time.Time) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	options, err := redis.ParseURL(url)
	check(err)
	locks := rwlock.New(redis.NewClient(options), who)
	defer locks.Close()
	ctx := context.Background()
	say := func(format string, args ...any) {
		fmt.Printf("%5d ms  %s  %s\n", time.Since(start).Milliseconds(), who, fmt.Sprintf(format, args...))
	}
	for range 3 {
		time.Sleep(rand.N(200 * time.Millisecond))
		say("asks")
		if strings.HasPrefix(who, "writer") {
			hold, err := locks.Lock(ctx, "demo", rwlock.Options{Wait: 5 * time.Second, Fence: true})
			check(err)
			say("          WRITES  (token %d)", hold.Token)
			time.Sleep(100 * time.Millisecond)
			say("          done")
			check(hold.Unlock())
		} else {
			hold, err := locks.RLock(ctx, "demo", rwlock.Options{Wait: 5 * time.Second})
			check(err)
			say("     reads")
			time.Sleep(150 * time.Millisecond)
			say("     done")
			check(hold.Unlock())
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
