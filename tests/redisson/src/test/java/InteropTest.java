import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

/** The real Redisson and clients of the module, on the same locks. */
@Timeout(60)
class InteropTest {
    /** What a machine may be late by, in ms. */
    private static final long LATE = 1500;

    private static RedissonClient redisson;
    private static Servers.Owner ann;
    private static Servers.Owner bob;

    private final String key = "interop:" + UUID.randomUUID();
    private volatile Thread waiting;
    private final ExecutorService others = Executors.newCachedThreadPool();

    @BeforeAll static void connect() {
        redisson = Servers.redisson();
        ann = new Servers.Owner("ann");
        bob = new Servers.Owner("bob");
    }

    @AfterAll static void disconnect() {
        redisson.shutdown();
        ann.close();
        bob.close();
    }

    @AfterEach void end() { others.shutdownNow(); }

    @Test void eachExcludesTheOther() throws Exception {
        RReadWriteLock theirs = redisson.getReadWriteLock(key);
        theirs.writeLock().lock();
        assertFalse(ann.take("RLOCK", key, 1000));
        assertFalse(ann.take("WLOCK", key, 1000));
        theirs.writeLock().unlock();

        theirs.readLock().lock();
        assertFalse(ann.take("WLOCK", key, 60_000));
        assertTrue(ann.take("RLOCK", key, 60_000), "readers share");
        theirs.readLock().unlock();
        assertFalse(theirs.writeLock().tryLock());
        assertTrue(theirs.readLock().tryLock());
        theirs.readLock().unlock();
        assertEquals(1, ann.unlock(key, "READ"));

        assertTrue(ann.take("WLOCK", key, 60_000, "FENCE"));
        assertFalse(theirs.writeLock().tryLock());
        assertFalse(theirs.readLock().tryLock());
        assertTrue(theirs.writeLock().isLocked());
        assertEquals(1, ann.unlock(key, "WRITE"));
        assertTrue(theirs.writeLock().tryLock());
        theirs.writeLock().unlock();
        nothingIsLeft();
    }

    @ParameterizedTest
    @CsvSource({"write, write", "write, read", "read, write"})
    void redissonWakesTheModule(String held, String wanted) throws Exception {
        RLock theirs = theirs(held);
        theirs.lock(60, TimeUnit.SECONDS);
        Future<Boolean> waiter = others.submit(() -> ours(wanted));
        until(() -> waiters() == 1);
        long start = System.nanoTime();
        theirs.unlock();
        assertTrue(waiter.get());
        inTime("a module's client that waits for " + wanted + " is served", start, LATE);
        assertEquals(1, ann.unlock(key, wanted));
        nothingIsLeft();
    }

    @ParameterizedTest
    @CsvSource({"write, write", "write, read", "read, write"})
    void theModuleWakesRedisson(String held, String wanted) throws Exception {
        assertTrue(ann.take(command(held), key, 60_000));
        Future<Long> waiter = others.submit(() -> tookAndGaveBack(wanted));
        until(this::redissonSleeps);
        long start = System.nanoTime();
        assertEquals(1, ann.unlock(key, held));
        waiter.get();
        inTime("a Redisson client that waits for " + wanted + " is woken", start, LATE);
        nothingIsLeft();
    }

    /** A lease that lapses is announced: Redisson need not sleep until its own time is up. */
    @ParameterizedTest
    @ValueSource(strings = {"read", "write"})
    void aLapseWakesRedisson(String held) throws Exception {
        assertTrue(ann.take(command(held), key, 1500));
        long start = System.nanoTime();
        others.submit(() -> tookAndGaveBack("write")).get();
        inTime("a Redisson client gets what a module's " + held + " hold of 1,500 ms left", start, 1500 + LATE);
    }

    /** The process is killed (SIGKILL) while it holds; its watchdog ends with it. */
    @ParameterizedTest
    @CsvSource({"write, write", "write, read", "read, write"})
    void theModuleSurvivesACrashOfRedisson(String held, String wanted) throws Exception {
        Process holder = holder("redisson", held);
        Future<Boolean> waiter = others.submit(() -> ours(wanted));
        until(() -> waiters() == 1);
        TimeUnit.MILLISECONDS.sleep(Servers.WATCHDOG + 1000);
        assertFalse(waiter.isDone(), "the watchdog renews while the process lives");
        long start = System.nanoTime();
        kill(holder);
        assertTrue(waiter.get());
        inTime("a module's client gets what a killed Redisson left", start, Servers.WATCHDOG + LATE);
        ann.unlock(key, wanted);
        nothingIsLeft();
    }

    @ParameterizedTest
    @CsvSource({"lease, write, write, 3000", "lease, read, write, 3000", "lease, write, read, 3000",
        "session, write, write, 0", "session, read, write, 0"})
    void redissonSurvivesACrashOfTheModulesClient(String how, String held, String wanted, long lease)
            throws Exception {
        Process holder = holder(how, held);
        Future<Long> waiter = others.submit(() -> tookAndGaveBack(wanted));
        until(this::redissonSleeps);
        assertFalse(waiter.isDone());
        long start = System.nanoTime();
        kill(holder);
        waiter.get();
        inTime("a Redisson client gets what a killed client with a " + how + " left", start, lease + LATE);
        nothingIsLeft();
    }

    /** One of two readers crashes; the other, of the other kind, lives on. */
    @Test void aCrashedRedissonReaderIsNotKeptAliveByTheModule() throws Exception {
        Process holder = holder("redisson", "read");
        assertTrue(ann.take("RLOCK", key, 60_000));
        kill(holder);
        ann.renew(key, 60_000);
        until(() -> holders() == 1);
        assertEquals(1, ann.unlock(key, "READ"), "nobody else was left");
        nothingIsLeft();
    }

    /** What Redisson's watchdog does to the module's readers: it depends on the version. */
    @Test void aCrashedModuleReaderBesideAWatchdog() throws Exception {
        RLock theirs = theirs("read");
        theirs.lock();
        assertTrue(ann.take("RLOCK", key, 1500));
        TimeUnit.MILLISECONDS.sleep(Servers.WATCHDOG + 1500);
        measured("a module's reader without renewals, 1,500 ms, after 4,500 ms beside a Redisson watchdog",
                holders() == 2 ? "is kept alive" : "has lapsed");
        theirs.unlock();
        until(() -> holders() == 0);
        nothingIsLeft();
    }

    /** And to a module's reader with a longer lease. */
    @Test void aWatchdogDoesNotEndALongerLease() throws Exception {
        assertTrue(ann.take("RLOCK", key, 60_000));
        RLock theirs = theirs("read");
        theirs.lock();
        TimeUnit.MILLISECONDS.sleep(Servers.WATCHDOG);
        theirs.unlock();
        measured("ms left of a module's read lease of 60,000 ms after 3,000 ms beside a watchdog of 3,000 ms",
                ann.jedis.pttl("{" + key + "}:ann:rwlock_timeout:1"));
        assertEquals(1, holders());
        assertFalse(theirs("write").tryLock());
        assertEquals(1, ann.unlock(key, "READ"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"read", "write"})
    void renewalsKeepTheOtherOut(String held) throws Exception {
        assertTrue(ann.take(command(held), key, 1000));
        for (int i = 0; i < 12; i++) {
            TimeUnit.MILLISECONDS.sleep(300);
            ann.renew(key, 1000);
            assertFalse(theirs("write").tryLock());
        }
        ann.unlock(key, held);
        assertTrue(theirs("write").tryLock());
        theirs("write").unlock();
        nothingIsLeft();
    }

    @Test void theModulesReadersGetInWhenRedissonDowngrades() throws Exception {
        theirs("write").lock();
        theirs("read").lock();
        Future<Boolean> waiter = others.submit(() -> ours("read"));
        until(() -> waiters() == 1);
        long start = System.nanoTime();
        theirs("write").unlock();
        assertTrue(waiter.get());
        inTime("a module's reader gets in after a downgrade of Redisson", start, LATE);
        theirs("read").unlock();
        assertEquals(1, ann.unlock(key, "READ"));
        nothingIsLeft();
    }

    @Test void redissonReadersGetInWhenTheModuleDowngrades() throws Exception {
        assertTrue(ann.take("WLOCK", key, 60_000));
        Future<Long> waiter = others.submit(() -> tookAndGaveBack("read"));
        until(this::redissonSleeps);
        long start = System.nanoTime();
        ann.jedis.sendCommand("RWLOCK.DOWNGRADE"::getBytes, key, "ann", "60000");
        waiter.get();
        inTime("a Redisson reader gets in after a downgrade of the module", start, LATE);
        assertEquals(1, ann.unlock(key, "READ"));
        nothingIsLeft();
    }

    /** What cannot be promised: Redisson adds the leases of a writer that enters again. */
    @Test void additiveLeases() throws Exception {
        RLock theirs = theirs("write");
        theirs.lock(10, TimeUnit.SECONDS);
        theirs.lock(10, TimeUnit.SECONDS);
        long redissons = ann.jedis.pttl(key);
        measured("ms left after Redisson's writer took 10,000 ms twice", redissons);
        assertTrue(redissons > 15_000);
        assertFalse(ann.take("WLOCK", key, 1000));
        theirs.unlock();
        theirs.unlock();
        assertTrue(ann.take("WLOCK", key, 10_000));
        assertTrue(ann.take("WLOCK", key, 10_000));
        long ours = ann.jedis.pttl(key);
        measured("ms left after a module's writer took 10,000 ms twice", ours);
        assertTrue(ours <= 10_000);
        ann.unlock(key, "ALL");
        nothingIsLeft();
    }

    /** What cannot be promised: Redisson's readers do not know the module's queue. */
    @Test void redissonReadersGoAheadOfAWriterOfTheModuleThatWaits() throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        AtomicInteger entered = new AtomicInteger();
        theirs("read").lock();
        Future<Boolean> waiter = others.submit(() -> ours("write"));
        until(() -> waiters() == 1);
        Future<?>[] readers = new Future<?>[3];
        for (int i = 0; i < readers.length; i++) {
            readers[i] = others.submit((Callable<Void>) () -> {
                while (!stop.get()) {
                    if (!theirs("read").tryLock()) break;
                    entered.incrementAndGet();
                    TimeUnit.MILLISECONDS.sleep(20);
                    theirs("read").unlock();
                }
                return null;
            });
        }
        TimeUnit.SECONDS.sleep(2);
        boolean waits = !waiter.isDone();
        measured("Redisson readers that got in within 2 s ahead of a writer of the module", entered.get());
        assertTrue(waits && entered.get() > 0);
        assertFalse(bob.take("RLOCK", key, 1000), "the module's own readers wait");
        stop.set(true);
        for (Future<?> reader : readers) reader.get();
        theirs("read").unlock();
        assertTrue(waiter.get());
        ann.unlock(key, "WRITE");
        nothingIsLeft();
    }

    /** The other way round: Redisson waits until the module's queue is empty. */
    @Test void redissonWaitsUntilTheModulesQueueIsEmpty() throws Exception {
        AtomicInteger turns = new AtomicInteger();
        AtomicBoolean stop = new AtomicBoolean();
        assertTrue(ann.take("WLOCK", key, 60_000));
        Future<?>[] writers = new Future<?>[3];
        for (int i = 0; i < writers.length; i++) {
            String name = "writer-" + i;
            writers[i] = others.submit((Callable<Void>) () -> {
                try (Servers.Owner owner = new Servers.Owner(name)) {
                    while (!stop.get() && owner.waitFor("WLOCK", key, 60_000, 20_000)) {
                        turns.incrementAndGet();
                        TimeUnit.MILLISECONDS.sleep(10);
                        owner.unlock(key, "WRITE");
                    }
                }
                return null;
            });
        }
        until(() -> waiters() == 3);
        Future<Long> theirs = others.submit(() -> tookAndGaveBack("write"));
        until(this::redissonSleeps);
        ann.unlock(key, "WRITE");
        TimeUnit.SECONDS.sleep(2);
        measured("turns that three writers of the module took in 2 s beside a Redisson writer that waits",
                turns.get() + (theirs.isDone() ? ", and it got in" : ", and it waited"));
        stop.set(true);
        for (Future<?> writer : writers) writer.get();
        theirs.get();
        nothingIsLeft();
    }

    /**
     * What cannot be promised: a Redisson client can miss the message of a writer that leaves. It
     * wakes those who sleep when the message comes, not one that is about to; that one sleeps until
     * its time, or the lock's, is up. The same among Redisson clients alone.
     */
    @ParameterizedTest
    @ValueSource(strings = {"Redisson", "the module"})
    void redissonCanMissTheMessageOfAWriter(String holder) throws Exception {
        int missed = 0, rounds = 200;
        Random random = new Random();
        for (int i = 0; i < rounds; i++) {
            if (holder.equals("Redisson")) theirs("write").lock();
            else assertTrue(ann.take("WLOCK", key, 60_000));
            Future<Long> waiter = others.submit(() -> {
                long start = System.nanoTime();
                if (theirs("write").tryLock(1000, TimeUnit.MILLISECONDS)) theirs("write").unlock();
                return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            });
            while (!redissonListens() && !waiter.isDone()) Thread.onSpinWait();
            long moment = System.nanoTime() + random.nextInt(1_500_000);
            while (System.nanoTime() < moment) Thread.onSpinWait();
            if (holder.equals("Redisson")) theirs("write").unlock();
            else ann.unlock(key, "WRITE");
            long took = waiter.get();
            if (took >= 1000) missed++;
            assertTrue(took <= 1000 + LATE);
            until(() -> !redissonListens());
        }
        measured("messages that a Redisson client missed of " + rounds + " when " + holder
                + " gave back just as it began to listen", missed);
        nothingIsLeft();
    }

    private RLock theirs(String kind) {
        RReadWriteLock both = redisson.getReadWriteLock(key);
        return kind.equals("read") ? both.readLock() : both.writeLock();
    }

    /** The owner is the thread: taken and given back in one. */
    private long tookAndGaveBack(String kind) throws InterruptedException {
        RLock lock = theirs(kind);
        waiting = Thread.currentThread();
        assertTrue(lock.tryLock(30, TimeUnit.SECONDS));
        lock.unlock();
        return System.nanoTime();
    }

    /** On a connection of its own, for the owner ann. */
    private boolean ours(String kind) {
        try (Servers.Owner owner = new Servers.Owner("ann")) {
            return owner.waitFor(command(kind), key, 60_000, 30_000);
        }
    }

    private static String command(String kind) { return kind.equals("read") ? "RLOCK" : "WLOCK"; }

    private long waiters() { return (Long) bob.inspect(key).get("waiters_total"); }

    private long holders() { return (Long) bob.inspect(key).get("holders_total"); }

    /** Listens, has asked once more, and waits for a message: what comes earlier it may miss. */
    private boolean redissonSleeps() {
        Thread thread = waiting;
        return thread != null && Arrays.stream(thread.getStackTrace())
                .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
    }

    private boolean redissonListens() {
        return bob.jedis.pubsubNumSub("redisson_rwlock:{" + key + "}").values().iterator().next() == 1;
    }

    private Process holder(String how, String kind) throws Exception {
        Process process = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-XX:TieredStopAtLevel=1",
                "-cp", System.getProperty("java.class.path"), "Holder", how, kind, key)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String said = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
        assertEquals("held", said);
        return process;
    }

    private static void kill(Process process) throws InterruptedException {
        process.destroyForcibly();
        assertEquals(128 + 9, process.waitFor(), "killed");
    }

    /** The lock, its timeout keys and its queue are gone; a fence key may stay. */
    private void nothingIsLeft() {
        until(() -> !bob.jedis.exists(key));
        assertEquals(List.of(), bob.jedis.keys("{" + key + "}:*:rwlock_timeout:*").stream().toList());
        assertEquals(0, waiters());
    }

    private static void inTime(String what, long start, long limit) {
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        measured(what + ", after ms", took);
        assertTrue(took <= limit, what + " after " + took + " ms, at most " + limit);
    }

    private static void measured(String what, Object value) {
        System.out.println(String.format(Locale.ROOT, "measured: %s: %s", what, value));
    }

    private static void until(BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "waited for too long");
            try {
                TimeUnit.MILLISECONDS.sleep(5);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
