package rwlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import rwlock.RwLocks.Held;
import rwlock.RwLocks.Options;

/** Row 18: a process keeps a lock until somebody else wants it. On the server of {@link RwLocksTest}. */
@ParameterizedClass
@Timeout(60)
@ValueSource(strings = {"jedis", "lettuce"})
class LingerTest {
    private static final URI URL = URI.create(System.getenv("RWLOCK_URL"));
    private static final String ADDRESS = URL.getHost() + ":" + URL.getPort();
    private static final Options KEEP = Options.within(Duration.ofSeconds(10)).withLinger(Duration.ofSeconds(30));
    private final Jedis redis = new Jedis(URL.getHost(), URL.getPort());
    private final String key = "linger:" + UUID.randomUUID();
    private final String library;
    private final RwLocks locks;
    private final RwLocks others;
    private int count;

    LingerTest(String library) {
        this.library = library;
        locks = locks(ADDRESS);
        others = locks(ADDRESS);
    }

    private RwLocks locks(String address) {
        return RwLocks.named("linger", library.equals("jedis") ? new WithJedis() : new WithLettuce(), address);
    }

    @BeforeEach void begin() { redis.configSet("notify-keyspace-events", "Kd"); }

    @AfterEach void end() {
        locks.close();
        others.close();
        redis.configSet("notify-keyspace-events", "");
        redis.close();
    }

    /** The token of one use. */
    private long use(RwLocks by) {
        try (Held held = by.write(key, KEEP)) {
            assertFalse(held.isLost());
            return held.token();
        }
    }

    @Test void row18_enteringAgainAsksNoServer() {
        long token = use(locks), before = requests();
        for (int i = 0; i < 1000; i++) {
            try (Held held = locks.write(key, KEEP)) {
                assertEquals(token, held.token());
                assertEquals(token, use(locks)); // inside, too
            }
        }
        assertEquals(before, requests());
        assertEquals("write", inspect("mode"));
    }

    @Test void row18_whoWantsItGetsItAtOnce() {
        for (long last = 0, i = 0; i < 20; i++) {
            long start = System.nanoTime(), token = use(i % 2 == 0 ? locks : others);
            assertTrue(token > last);
            assertTrue(System.nanoTime() - start < 1_000_000_000);
            last = token;
        }
    }

    @Test void row18_aUseIsNotCutShort() throws Exception {
        use(locks);
        Held held = locks.write(key, KEEP);
        CompletableFuture<Long> other = CompletableFuture.supplyAsync(() -> use(others));
        waiters(1);
        Thread.sleep(100); // for the event
        held.check();
        long token = held.token();
        held.release();
        assertTrue(other.get() > token);
    }

    /** Then it was handed from one to the next, and no event tells of the third. */
    @Test void row18_somebodyWaitedBeforeTheGrant() throws Exception {
        Held held = locks.write(key, KEEP);
        try (RwLocks third = locks(ADDRESS)) {
            var second = CompletableFuture.runAsync(() -> use(others));
            waiters(1);
            var last = CompletableFuture.runAsync(() -> use(third));
            waiters(2);
            long start = System.nanoTime();
            held.release();
            second.get();
            last.get();
            assertTrue(System.nanoTime() - start < 2_000_000_000);
        }
    }

    @Test void row18_aHoldThatEndedIsNotEntered() throws Exception {
        List<Runnable> ends = List.of(
                () -> redis.sendCommand(Protocol.Command.CLIENT, "KILL", "ID", inspectHolder("session")),
                () -> redis.sendCommand(Protocol.Command.CLIENT, "KILL", "TYPE", "pubsub"),
                () -> redis.sendCommand(() -> "RWLOCK.FORCEUNLOCK".getBytes(), key));
        for (Runnable end : ends) {
            long token = use(locks);
            end.run();
            RwLocksTest.until(() -> inspect("mode").equals("free"));
            Thread.sleep(100); // for the event
            assertTrue(use(locks) > token);
            assertEquals("write", inspect("mode"));
        }
    }

    @Test void row18_theTimeIsOver() {
        locks.write(key, KEEP.withLinger(Duration.ofMillis(300))).close();
        assertEquals("write", inspect("mode"));
        RwLocksTest.until(() -> inspect("mode").equals("free"));
        RwLocksTest.until(() -> !threads());
    }

    @Test void row18_aLeaseIsRenewedAndItsEndIsKnown() throws Exception {
        for (Options options : List.of(KEEP, KEEP.withoutSession())) {
            try (TestServer server = TestServer.start(redis); RwLocks mine = locks(server.address());
                    Jedis control = server.jedis()) {
                control.configSet("notify-keyspace-events", "KA");
                Options second = options.withLease(Duration.ofSeconds(1));
                Held held = mine.write(key, second);
                held.close();
                Thread.sleep(1500); // longer than the lease
                Held again = mine.write(key, second);
                assertEquals(held.token(), again.token());
                again.close();
                server.signal("STOP");
                Thread.sleep(1000); // the server was not heard of for as long as the lease
                Options soon = second.withLimit(Duration.ofMillis(300));
                assertThrows(RwLocks.LockException.class, () -> mine.write(key, soon));
            }
        }
    }

    @Test void row18_aServerWithoutKeyEvents() {
        redis.configSet("notify-keyspace-events", "Kg");
        String told = assertThrows(RwLocks.LockException.class, () -> use(locks)).getMessage();
        assertTrue(told.contains("CONFIG SET notify-keyspace-events Kd"), told);
        assertEquals("free", inspect("mode"));
    }

    @Test void row18_threads() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (RwLocks by : List.of(locks, locks, locks, others)) {
            threads.add(new Thread(() -> {
                for (int i = 0; i < 500; i++) {
                    try (Held held = by.write(key, KEEP)) {
                        int seen = count;
                        if (seen % 10 == 0) Thread.yield();
                        count = seen + 1;
                    }
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) thread.join();
        assertEquals(2000, count);
        try (Held held = locks.write(key, KEEP)) {
            for (Duration limit : List.of(Duration.ZERO, Duration.ofMillis(100))) {
                var other = CompletableFuture.runAsync(() -> locks.write(key, KEEP.withLimit(limit)));
                assertThrows(ExecutionException.class, other::get);
            }
        }
    }

    @Test void row18_withAndWithoutItIsADeadlock() {
        try (Held held = locks.write(key, KEEP)) {
            assertThrows(RwLocks.Deadlock.class, () -> locks.read(key));
            assertThrows(IllegalStateException.class, held::downgrade);
        }
        use(others);
        try (Held held = locks.write(key, Options.within(Duration.ofSeconds(5)))) {
            assertThrows(RwLocks.Deadlock.class, () -> use(locks));
        }
    }

    @Test void row18_nothingRemainsAfterClose() {
        use(locks);
        assertTrue(threads());
        locks.close();
        RwLocksTest.until(() -> !threads());
        RwLocksTest.until(() -> inspect("mode").equals("free"));
        assertThrows(IllegalStateException.class, () -> use(locks));
    }

    /** Two processes, killed at random. RWLOCK_LINGER_ROUNDS=10000 takes a minute. */
    @Test @Timeout(600) void row18_neverTwoHolders() throws Exception {
        if (library.equals("lettuce")) return; // one of them is enough
        String rounds = System.getenv().getOrDefault("RWLOCK_LINGER_ROUNDS", "300");
        LingerProcesses.main(new String[] {"rounds", ADDRESS, rounds});
    }

    private boolean threads() {
        return Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().equals("rwlock-linger"));
    }

    private void waiters(long number) { RwLocksTest.until(() -> inspect("waiters_total").equals("" + number)); }

    private String inspect(String name) {
        return text(in((List<?>) redis.sendCommand(() -> "RWLOCK.INSPECT".getBytes(), key), name));
    }

    private String inspectHolder(String name) {
        List<?> lock = (List<?>) redis.sendCommand(() -> "RWLOCK.INSPECT".getBytes(), key);
        return text(in((List<?>) ((List<?>) in(lock, "holders")).get(0), name));
    }

    private static Object in(List<?> map, String name) {
        for (int i = 0; i < map.size(); i += 2) if (text(map.get(i)).equals(name)) return map.get(i + 1);
        throw new AssertionError(name + " is not there");
    }

    private static String text(Object word) { return word instanceof byte[] bytes ? new String(bytes) : "" + word; }

    private long requests() { return LingerProcesses.requests(redis); }
}
