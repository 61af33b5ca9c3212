import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;

/**
 * Redisson's clients and the module's take the same locks at random, and leave marks in keys
 * beside them: a writer must meet nobody, a reader no writer. Nobody may wait past its time.
 *
 * <p>Environment: SOAK_SECONDS (60), or SOAK_OPERATIONS: so many acquisitions instead, as fast as
 * they go; SOAK_THREADS of each kind (8); SOAK_LOCKS (20); SOAK_HOLD_MS: the longest hold (3);
 * SOAK_LONG: one in so many is longer than any lease (2000).
 */
final class Soak {
    /** Longest wait of an acquisition, in ms. */
    private static final long WAIT = 5000;
    /** How much longer than its wait an acquisition may take: the machine, not the lock. */
    private static final long ALLOWANCE = 1000;
    /** A module's client's lease, and for how long a long hold lasts. */
    private static final long LEASE = 2000, LONG_HOLD = Servers.WATCHDOG + 1500;

    private static final int THREADS = number("SOAK_THREADS", 8);
    private static final int LOCKS = number("SOAK_LOCKS", 20);
    /** One in so many holds outlives the watchdog's and the module's lease: both are renewed. */
    private static final int LONG = number("SOAK_LONG", 2000);
    private static final int HOLD_MS = number("SOAK_HOLD_MS", 3);
    private static final long OPERATIONS = number("SOAK_OPERATIONS", 0);
    private static final long END =
            OPERATIONS > 0 ? Long.MAX_VALUE : System.nanoTime() + number("SOAK_SECONDS", 60) * 1_000_000_000L;

    private static final AtomicLong done = new AtomicLong(), wrong = new AtomicLong();
    private static final AtomicBoolean stop = new AtomicBoolean();

    /** What all clients of a kind did. */
    private static final class Tally {
        final AtomicLong reads = new AtomicLong(), writes = new AtomicLong(), longs = new AtomicLong();
        final AtomicLong timeouts = new AtomicLong(), longest = new AtomicLong(), late = new AtomicLong();

        @Override public String toString() {
            return String.format(Locale.ROOT, "%d reads, %d writes, %d of them held for %d ms, %d timeouts, "
                    + "longest wait %d ms, %d ms past its time at most", reads.get(), writes.get(), longs.get(),
                    LONG_HOLD, timeouts.get(), longest.get(), late.get());
        }
    }

    /** A client: how it takes a lock and gives it back. */
    private interface Client extends AutoCloseable {
        boolean take(String key, boolean write, long wait) throws Exception;

        /** Does what keeps the hold alive for so long. */
        void hold(String key, long millis) throws Exception;

        void giveBack(String key, boolean write) throws Exception;

        @Override default void close() {}
    }

    public static void main(String[] args) throws Exception {
        try (Jedis jedis = Servers.jedis()) {
            jedis.flushAll();
        }
        RedissonClient[] redissons = {Servers.redisson(), Servers.redisson()};
        Tally theirs = new Tally(), ours = new Tally();
        List<Thread> threads = new ArrayList<>();
        long start = System.nanoTime();
        for (int i = 0; i < THREADS; i++) {
            int n = i;
            threads.add(new Thread(() -> work("redisson-" + n, theirs, new Redissons(redissons[n % 2], n))));
            threads.add(new Thread(() -> work("module-" + n, ours, new Modules(n))));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) thread.join();
        double seconds = (System.nanoTime() - start) / 1e9;
        for (RedissonClient redisson : redissons) redisson.shutdown();

        System.out.println("soak: redisson  " + theirs);
        System.out.println("soak: module    " + ours);
        try (Servers.Owner owner = new Servers.Owner("judge")) {
            for (int i = 0; i < LOCKS; i++) {
                String key = "soak:" + i, readers = owner.jedis.get(mark(key, "r"));
                if (owner.jedis.exists(key) || owner.jedis.exists(mark(key, "w"))
                        || (readers != null && !readers.equals("0"))) {
                    violation(key + " is left held: " + owner.jedis.hgetAll(key) + ", readers " + readers);
                }
                if ((Long) owner.inspect(key).get("waiters_total") != 0) violation(key + " is left waited for");
            }
        }
        System.out.printf(Locale.ROOT, "soak: %d acquisitions in %.0f s on %d locks, %d threads of each kind; "
                + "%d violations%n", done.get(), seconds, LOCKS, THREADS, wrong.get());
        boolean both = theirs.reads.get() > 0 && theirs.writes.get() > 0 && ours.reads.get() > 0 && ours.writes.get() > 0;
        System.exit(wrong.get() == 0 && both ? 0 : 1);
    }

    private static void work(String name, Tally tally, Client client) {
        Random random = new Random();
        try (Client it = client; Jedis witness = Servers.jedis()) {
            while (!stop.get() && System.nanoTime() < END && (OPERATIONS == 0 || done.get() < OPERATIONS)) {
                String key = "soak:" + random.nextInt(LOCKS);
                boolean write = random.nextInt(3) == 0;
                long wait = 1 + random.nextLong(WAIT);
                long start = System.nanoTime();
                boolean granted = it.take(key, write, wait);
                long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
                tally.longest.accumulateAndGet(took, Math::max);
                tally.late.accumulateAndGet(took - wait, Math::max);
                if (took > wait + ALLOWANCE) violation(name + " waited " + took + " ms for " + key + ", not " + wait);
                if (!granted) {
                    tally.timeouts.incrementAndGet();
                    continue;
                }
                done.incrementAndGet();
                (write ? tally.writes : tally.reads).incrementAndGet();
                enter(witness, key, name, write);
                if (random.nextInt(LONG) == 0) {
                    tally.longs.incrementAndGet();
                    it.hold(key, LONG_HOLD);
                } else if (HOLD_MS > 0) {
                    Thread.sleep(random.nextInt(HOLD_MS + 1));
                }
                leave(witness, key, name, write);
                it.giveBack(key, write);
            }
        } catch (Exception error) {
            violation(name + ": " + error);
            error.printStackTrace();
            stop.set(true);
        }
    }

    private static String mark(String key, String kind) { return "{" + key + "}:witness:" + kind; }

    private static void enter(Jedis witness, String key, String name, boolean write) {
        Pipeline pipeline = witness.pipelined();
        Response<Long> first = write ? pipeline.setnx(mark(key, "w"), name) : pipeline.incr(mark(key, "r"));
        Response<String> other = pipeline.get(mark(key, write ? "r" : "w"));
        pipeline.sync();
        if (write && first.get() == 0) violation(key + ": another writer beside " + name);
        if (write && other.get() != null && !other.get().equals("0")) {
            violation(key + ": " + other.get() + " readers beside the writer " + name);
        }
        if (!write && other.get() != null) violation(key + ": the writer " + other.get() + " beside the reader " + name);
    }

    /** Looks once more: who came later is seen by both. */
    private static void leave(Jedis witness, String key, String name, boolean write) {
        if (write) {
            Pipeline pipeline = witness.pipelined();
            Response<String> writer = pipeline.get(mark(key, "w")), readers = pipeline.get(mark(key, "r"));
            pipeline.del(mark(key, "w"));
            pipeline.sync();
            if (!name.equals(writer.get())) violation(key + ": " + writer.get() + " came beside the writer " + name);
            if (readers.get() != null && !readers.get().equals("0")) {
                violation(key + ": " + readers.get() + " readers came beside the writer " + name);
            }
        } else {
            Pipeline pipeline = witness.pipelined();
            Response<String> writer = pipeline.get(mark(key, "w"));
            pipeline.decr(mark(key, "r"));
            pipeline.sync();
            if (writer.get() != null) violation(key + ": the writer " + writer.get() + " came beside " + name);
        }
    }

    /** Half of its locks are renewed by the watchdog, half have a lease. */
    private static final class Redissons implements Client {
        private final RedissonClient redisson;
        private final Random random;
        private RLock lock;
        private boolean again;

        Redissons(RedissonClient redisson, int seed) {
            this.redisson = redisson;
            random = new Random(seed);
        }

        @Override public boolean take(String key, boolean write, long wait) throws InterruptedException {
            RReadWriteLock both = redisson.getReadWriteLock(key);
            lock = write ? both.writeLock() : both.readLock();
            long lease = random.nextBoolean() ? -1 : LONG_HOLD + 10_000;
            if (!lock.tryLock(wait, lease, TimeUnit.MILLISECONDS)) return false;
            again = random.nextInt(10) == 0; // a holder enters again
            if (again) lock.lock(LONG_HOLD + 10_000, TimeUnit.MILLISECONDS);
            return true;
        }

        @Override public void hold(String key, long millis) throws InterruptedException { Thread.sleep(millis); }

        @Override public void giveBack(String key, boolean write) {
            if (again) lock.unlock();
            lock.unlock();
        }
    }

    /** Half of its holds are bound to the connection, half are renewed when they last. */
    private static final class Modules implements Client {
        private final Servers.Owner owner;
        private final Random random;
        private boolean session;
        private boolean again;

        Modules(int n) {
            owner = new Servers.Owner("module-" + n);
            random = new Random(n);
        }

        @Override public boolean take(String key, boolean write, long wait) {
            session = random.nextBoolean();
            List<String> options = new ArrayList<>(List.of("BLOCK", Long.toString(wait)));
            if (session) options.add("SESSION");
            if (write) options.add("FENCE");
            String kind = write ? "WLOCK" : "RLOCK";
            if (!owner.take(kind, key, LEASE, options.toArray(new String[0]))) return false;
            again = random.nextInt(10) == 0;
            if (again && !owner.take(kind, key, LEASE)) violation(key + ": a holder was refused");
            return true;
        }

        @Override public void hold(String key, long millis) throws InterruptedException {
            for (long left = millis; left > 0; left -= 500) {
                Thread.sleep(Math.min(left, 500));
                owner.renew(key, LEASE);
            }
        }

        @Override public void giveBack(String key, boolean write) {
            if (again) owner.unlock(key, write ? "WRITE" : "READ");
            owner.unlock(key, write ? "WRITE" : "READ");
        }

        @Override public void close() { owner.close(); }
    }

    private static void violation(String text) {
        if (wrong.incrementAndGet() <= 100) System.err.println("soak: VIOLATION: " + text);
    }

    private static int number(String name, int standard) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? standard : Integer.parseInt(value);
    }
}
