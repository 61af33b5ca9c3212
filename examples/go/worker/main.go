// Takes locks for a while and checks, with plain keys, that nobody else has them.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"rwlock-example/rwlock"
)

var (
	name       = "go-redis"
	violations int
)

func main() {
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	options, err := redis.ParseURL(os.Getenv("RWLOCK_URL"))
	if err != nil {
		fatal(err)
	}
	var client redis.UniversalClient = redis.NewClient(options)
	if os.Getenv("RWLOCK_CLUSTER") == "1" {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}})
	}
	seconds, err := strconv.Atoi(os.Getenv("RWLOCK_SECONDS"))
	if err != nil {
		seconds = 10
	}
	locks := strings.Fields(os.Getenv("RWLOCK_LOCKS"))
	if len(locks) == 0 {
		fatal(errors.New("RWLOCK_LOCKS names no locks"))
	}

	rw := rwlock.New(client, name)
	defer rw.Close()
	ctx := context.Background()
	reads, writes, timeouts := 0, 0, 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		key := locks[rand.IntN(len(locks))]
		options := rwlock.Options{Wait: 5 * time.Second, PlainLease: rand.IntN(2) == 0}
		var hold *rwlock.Hold
		var err error
		write := rand.IntN(3) == 0
		if write {
			options.Fence = true
			hold, err = rw.Lock(ctx, key, options)
		} else {
			hold, err = rw.RLock(ctx, key, options)
		}
		if errors.Is(err, rwlock.ErrTimedOut) {
			timeouts++
			continue
		} else if err != nil {
			fatal(err)
		}
		if write {
			asWriter(ctx, client, key, hold.Token)
			writes++
		} else {
			asReader(ctx, client, key)
			reads++
		}
		if err := hold.Unlock(); err != nil {
			violation("%s: %v", key, err)
		}
	}
	fmt.Printf(`{"name": %q, "library": "go-redis", "reads": %d, "writes": %d, "timeouts": %d, "violations": %d}`+"\n",
		name, reads, writes, timeouts, violations)
	if violations > 0 || reads+writes == 0 {
		os.Exit(1)
	}
}

func asWriter(ctx context.Context, client redis.UniversalClient, key string, token int64) {
	w, r, t := "{"+key+"}:witness:w", "{"+key+"}:witness:r", "{"+key+"}:witness:token"
	if first, err := client.SetNX(ctx, w, name, 0).Result(); err != nil || !first {
		violation("%s: another writer beside %s: %v", key, name, err)
	}
	if readers, err := client.Get(ctx, r).Int64(); absent(err) != nil || readers != 0 {
		violation("%s: %d readers beside the writer %s: %v", key, readers, name, err)
	}
	if last, err := client.Get(ctx, t).Int64(); absent(err) != nil || token <= last {
		violation("%s: token %d after %d: %v", key, token, last, err)
	}
	check(client.Set(ctx, t, token, 0).Err())
	work()
	check(client.Del(ctx, w).Err())
}

func asReader(ctx context.Context, client redis.UniversalClient, key string) {
	w, r := "{"+key+"}:witness:w", "{"+key+"}:witness:r"
	check(client.Incr(ctx, r).Err())
	if writer, err := client.Get(ctx, w).Result(); err != redis.Nil {
		violation("%s: the writer %s beside the reader %s: %v", key, writer, name, err)
	}
	work()
	check(client.Decr(ctx, r).Err())
}

func work() { time.Sleep(time.Duration(rand.IntN(3001)) * time.Microsecond) }

func absent(err error) error {
	if err == redis.Nil {
		return nil
	}
	return err
}

func check(err error) {
	if err != nil {
		fatal(err)
	}
}

func violation(format string, args ...any) {
	violations++
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, name+":", err)
	os.Exit(1)
}
