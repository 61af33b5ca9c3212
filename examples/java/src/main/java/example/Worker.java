package example;

import java.net.URI;
import java.time.Duration;
import java.util.Random;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.SetParams;
import rwlock.RwLocks;
import rwlock.RwLocks.Options;

/** Takes locks for a while and checks, with plain keys, that nobody else has them. */
public final class Worker {
    private final String name;
    private final UnifiedJedis redis;
    private final Random random = new Random();
    private int violations;

    private Worker(String name, UnifiedJedis redis) {
        this.name = name;
        this.redis = redis;
    }

    /** Arguments: jedis or lettuce, and a name. */
    public static void main(String[] args) throws Exception {
        URI uri = URI.create(System.getenv("RWLOCK_URL"));
        HostAndPort address = new HostAndPort(uri.getHost(), uri.getPort());
        boolean cluster = "1".equals(System.getenv("RWLOCK_CLUSTER"));
        String name = args.length > 1 ? args[1] : args[0];
        try (RwLocks locks = RwLocks.named(name, library(args[0]), address.toString());
                UnifiedJedis redis = cluster ? RedisClusterClient.create(address) : RedisClient.create(address)) {
            Worker worker = new Worker(name, redis);
            boolean good = worker.run(args[0], locks);
            if (!good) System.exit(1);
        }
    }

    static RwLocks.Library library(String name) {
        return switch (name) {
            case "jedis" -> new rwlock.WithJedis();
            case "lettuce" -> new rwlock.WithLettuce();
            default -> throw new IllegalArgumentException(name + " is neither jedis nor lettuce");
        };
    }

    private boolean run(String library, RwLocks locks) throws InterruptedException {
        String[] keys = System.getenv("RWLOCK_LOCKS").trim().split(" +");
        String seconds = System.getenv().getOrDefault("RWLOCK_SECONDS", "10");
        long end = System.nanoTime() + Duration.ofSeconds(Long.parseLong(seconds)).toNanos();
        int reads = 0, writes = 0, timeouts = 0;
        while (System.nanoTime() - end < 0) {
            String key = keys[random.nextInt(keys.length)];
            Options options = Options.within(Duration.ofSeconds(5));
            if (random.nextBoolean()) options = options.withoutSession();
            boolean write = random.nextInt(3) == 0;
            try (RwLocks.Held lock = write ? locks.write(key, options.withFence()) : locks.read(key, options)) {
                if (write) {
                    asWriter(key, lock.token());
                    writes++;
                } else {
                    asReader(key);
                    reads++;
                }
            } catch (RwLocks.TimedOut error) {
                timeouts++;
            } catch (RwLocks.NotHeld error) {
                violation(key + ": " + error.getMessage());
            }
        }
        System.out.printf("{\"name\": \"%s\", \"library\": \"%s\", \"reads\": %d, \"writes\": %d, "
                + "\"timeouts\": %d, \"violations\": %d}%n", name, library, reads, writes, timeouts, violations);
        return violations == 0 && reads + writes > 0;
    }

    private void asWriter(String key, long token) throws InterruptedException {
        String w = "{" + key + "}:witness:w", r = "{" + key + "}:witness:r", t = "{" + key + "}:witness:token";
        if (redis.set(w, name, SetParams.setParams().nx()) == null) {
            violation(key + ": another writer beside " + name);
        }
        String readers = redis.get(r), last = redis.get(t);
        if (readers != null && !readers.equals("0")) violation(key + ": " + readers + " readers beside a writer");
        if (last != null && token <= Long.parseLong(last)) violation(key + ": token " + token + " after " + last);
        redis.set(t, Long.toString(token));
        work();
        redis.del(w);
    }

    private void asReader(String key) throws InterruptedException {
        String w = "{" + key + "}:witness:w", r = "{" + key + "}:witness:r";
        redis.incr(r);
        String writer = redis.get(w);
        if (writer != null) violation(key + ": the writer " + writer + " beside the reader " + name);
        work();
        redis.decr(r);
    }

    /** So that others have time to break in. */
    private void work() throws InterruptedException {
        Thread.sleep(random.nextInt(4));
    }

    private void violation(String text) {
        violations++;
        System.err.println(text);
    }
}
