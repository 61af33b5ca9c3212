package rwlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import rwlock.RwLocks.Held;
import rwlock.RwLocks.Options;

/**
 * On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a moment. "row"
 * is the row in the table of examples/README.md.
 */
@ParameterizedClass
@Timeout(60)
@ValueSource(strings = {"jedis", "lettuce"})
class RwLocksTest {
    private static final URI URL = URI.create(System.getenv("RWLOCK_URL"));
    private static final Options SOON = Options.within(Duration.ofSeconds(20));
    private static final Options SECOND = Options.within(Duration.ofSeconds(1));
    private final Jedis redis = new Jedis(URL.getHost(), URL.getPort());
    private final String key = "java:" + UUID.randomUUID();
    private final String library;
    private final RwLocks locks;

    RwLocksTest(String library) {
        this.library = library;
        locks = locks(URL.getHost() + ":" + URL.getPort());
    }

    private RwLocks locks(String... addresses) { return RwLocks.named("the test\n", library(), addresses); }

    private RwLocks.Library library() {
        // As a user would who wants its other commands to answer soon.
        RedisURI impatient = new RedisURI();
        impatient.setTimeout(Duration.ofSeconds(2));
        return library.equals("jedis") ? new WithJedis() : new WithLettuce(impatient);
    }

    @AfterEach void end() {
        locks.close();
        redis.close();
    }

    @Test void row1_withoutAWaitItTriesOnceAndForeverIsSaid() throws Exception {
        CompletableFuture<Void> other;
        try (Held mine = locks.write(key)) {
            long start = System.nanoTime();
            assertRefused(RwLocks.TimedOut.class, () -> locks.write(key));
            assertRefused(RwLocks.TimedOut.class, () -> locks.read(key, Options.within(Duration.ZERO)));
            assertTrue(millisSince(start) < 1000);
            other = takeAndGiveBack(Options.within(RwLocks.FOREVER));
            waiter();
            assertEquals(0L, in(first("waiters"), "timeout"));
        }
        other.get();
    }

    @Test void row2_aSessionIsTheDefaultAndALeaseIsRenewed() throws Exception {
        try (Held mine = locks.write(key)) {
            assertTrue((Long) in(first("holders"), "session") > 0);
        }
        try (Held mine = locks.write(key, Options.NOW.withoutSession().withLease(Duration.ofMillis(300)))) {
            assertEquals(0L, in(first("holders"), "session"));
            Thread.sleep(900); // three times as long as the lease
            mine.check();
        }
        assertEquals("free", mode());
    }

    @Test void row3_theSameThreadEntersAgain() throws Exception {
        try (Held outer = locks.write(key)) {
            try (Held inner = locks.write(key); Held reader = locks.read(key)) {
                assertRefused(RwLocks.TimedOut.class, () -> locks.read(key));
            }
            assertEquals("write", mode());
            assertThrows(IllegalStateException.class, () -> locks.write(key, Options.NOW.withFence()));
        }
        assertEquals("free", mode());
        try (Held reader = locks.read(key)) {
            // It would wait for itself.
            assertThrows(RwLocks.Deadlock.class, () -> locks.write(key, SOON));
        }
    }

    @Test void row4_upgradeAndDowngrade() throws Exception {
        try (Held mine = locks.read(key)) {
            mine.upgrade(Options.NOW.withFence());
            assertTrue(mine.token() > 0);
            assertEquals("write", mode());
            mine.downgrade();
            assertEquals("read", mode());
            CompletableFuture.runAsync(() -> locks.read(key).close()).get();
            assertThrows(IllegalStateException.class, mine::downgrade);
        }
        assertEquals("free", mode());
        for (Options options : List.of(Options.NOW, Options.NOW.withoutSession())) {
            Held other = CompletableFuture.supplyAsync(() -> locks.read(key, options)).get();
            Held mine = locks.read(key, options);
            assertThrows(RwLocks.TimedOut.class, () -> mine.upgrade(Options.NOW));
            assertThrows(RwLocks.TimedOut.class, () -> mine.upgrade(Options.within(Duration.ofMillis(20))));
            mine.check();
            CompletableFuture<Void> later = CompletableFuture.runAsync(() -> {
                waiter();
                other.release();
            });
            mine.upgrade(SOON);
            later.get();
            mine.close();
            assertEquals("free", mode());
        }
    }

    /** What is left decides: the one who reads on keeps a read hold. */
    @Test void row4_theLastWriterOfAThreadDowngrades() throws Exception {
        Held writer = locks.write(key);
        Held reader = locks.read(key);
        writer.release();
        assertEquals("read", mode());
        reader.upgrade(Options.NOW);
        assertEquals("write", mode());
        reader.release();
        assertEquals("free", mode());
    }

    @Test void row5_severalLocksInOneStep() throws Exception {
        List<String> writes = List.of(key, key + ":2");
        try (Held mine = locks.all(List.of(key + ":3"), writes, SOON.withFence())) {
            assertEquals(writes, List.copyOf(mine.tokens().keySet()));
            mine.check();
            locks.write(key).release();
            CompletableFuture.runAsync(() -> locks.read(key + ":3").close()).get();
            assertRefused(RwLocks.TimedOut.class, () -> locks.all(List.of(), List.of(key + ":4", key), Options.NOW));
            // It took none, so this one gets it.
            CompletableFuture.runAsync(() -> locks.write(key + ":4").close()).get();
        }
        assertEquals("free", mode());
        Options leased = Options.NOW.withoutSession().withLease(Duration.ofMillis(300));
        try (Held mine = locks.all(List.of(), writes, leased)) {
            Thread.sleep(900); // three times as long as the lease
            mine.check();
            redis.sendCommand(() -> "RWLOCK.FORCEUNLOCK".getBytes(), key);
            until(mine::isLost);
            assertThrows(RwLocks.NotHeld.class, mine::release);
        }
        assertEquals("free", mode());
    }

    @Test void row5_aLockThatIsNamedTwiceIsRefused() {
        for (List<String> reads : List.of(List.of(key, key), List.of(key))) {
            List<String> writes = reads.size() == 2 ? List.of() : List.of("other", key);
            RuntimeException told = assertThrows(IllegalArgumentException.class, () -> locks.all(reads, writes, SOON));
            assertEquals("lock " + key + " is named twice", told.getMessage());
            try (Held mine = locks.write(key)) {
                assertThrows(IllegalArgumentException.class, () -> locks.all(reads, writes, SOON));
            }
        }
        assertEquals("free", mode());
    }

    @Test void row6_row13_releaseBesideTheBlockAndOnlyOnce() {
        Held mine = locks.write(key);
        mine.release();
        assertEquals("free", mode());
        String told = assertThrows(IllegalStateException.class, mine::release).getMessage();
        assertTrue(told.contains("given back already"), told);
        assertThrows(IllegalStateException.class, () -> mine.upgrade(SOON));
        mine.close(); // as at the end of a try block
    }

    @Test void row7_theServerShowsTheName() {
        try (Held mine = locks.write(key)) {
            String owner = text(in(first("holders"), "owner"));
            assertTrue(owner.startsWith("the-test-@"), owner);
            assertTrue(owner.length() <= 200, owner);
            String clients = redis.clientList();
            assertTrue(clients.contains("id=" + in(first("holders"), "session") + " "), clients);
            assertTrue(clients.contains(" name=the-test-@"), clients);
        }
        RwLocks unnamed = new RwLocks(new WithJedis(), URL.getHost() + ":" + URL.getPort());
        try (unnamed; Held mine = unnamed.write(key)) {
            String owner = text(in(first("holders"), "owner"));
            assertTrue(owner.matches("[^@ ]+@[^@ ]+"), owner);
        }
    }

    @Test void row8_aLostSessionIsToldWithinASecond() throws Exception {
        Held mine = locks.write(key, SOON.withLease(Duration.ofMinutes(1)));
        AtomicInteger told = new AtomicInteger();
        mine.onLost(told::incrementAndGet);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        waiter();
        long start = System.nanoTime();
        kill((Long) in(first("holders"), "session"));
        until(() -> told.get() > 0);
        assertTrue(millisSince(start) < 1000);
        assertTrue(mine.isLost());
        other.get();
        assertThrows(RwLocks.NotHeld.class, mine::check);
        assertThrows(RwLocks.NotHeld.class, mine::close);
        assertEquals(1, told.get());
    }

    @Test void row8_aLostLeaseIsTold() {
        Held mine = locks.write(key, SOON.withoutSession().withLease(Duration.ofMillis(300)));
        mine.onLost(Thread.currentThread()::interrupt);
        redis.sendCommand(() -> "RWLOCK.FORCEUNLOCK".getBytes(), key);
        // Stands for the work, which the loss interrupts.
        assertThrows(InterruptedException.class, () -> Thread.sleep(10_000));
        assertTrue(mine.isLost());
        assertThrows(RwLocks.NotHeld.class, () -> locks.write(key)); // it is still entered
        assertThrows(RwLocks.NotHeld.class, mine::close);
        locks.write(key).close();
    }

    @Test void row9_afterARestartTheOldHolderKnows() throws Exception {
        try (TestServer server = TestServer.start(redis); RwLocks mine = locks(server.address());
                RwLocks others = locks(server.address())) {
            Held held = mine.write(key);
            server.kill();
            String module = moduleOf();
            server.run("--loadmodule", module);
            try (Held next = others.write(key, SOON)) {
                assertTrue(held.isLost());
            }
            assertThrows(RwLocks.NotHeld.class, held::close);
        }
    }

    @Test void row10_deadlinesHoldDuringAFailover() throws Exception {
        try (TestServer server = TestServer.start(redis); RwLocks mine = locks(server.address());
                Jedis control = server.jedis()) {
            mine.write(key).close();
            control.replicaof("127.0.0.1", 1);
            assertTimesOutAfterASecond(mine, "READONLY");
            assertThrows(RwLocks.TimedOut.class, () -> mine.write(key));
            control.replicaofNoOne();

            server.signal("STOP");
            assertTimesOutAfterASecond(mine, "");
            server.signal("CONT");

            control.eval("for i = 1, 20000 do redis.call('SET', 'key' .. i, 'value') end");
            control.save();
            server.kill();
            assertTimesOutAfterASecond(mine, "");
            server.run("--loadmodule", moduleOf(), "--key-load-delay", "1000",
                    "--loading-process-events-interval-bytes", "1024");
            assertTimesOutAfterASecond(mine, "LOADING");
        }
    }

    private void assertTimesOutAfterASecond(RwLocks locks, String reason) {
        long start = System.nanoTime();
        RwLocks.TimedOut error = assertThrows(RwLocks.TimedOut.class, () -> locks.write(key, SECOND));
        long millis = millisSince(start);
        assertTrue(millis >= 1000 && millis < 2000, millis + " ms");
        assertTrue(error.getMessage().contains(reason), error.getMessage());
        assertEquals(-2, error.heldMillis());
    }

    @Test void row11_whatIsNoAddressIsRefused() {
        String url = "the address is host:port, not a URL: redis://";
        assertEquals(url + "…@cache:6379", refusal("redis://ann:secret@cache:6379"));
        assertEquals(url + "127.0.0.1:6379", refusal("redis://127.0.0.1:6379"));
        assertEquals(url + "…@cache", refusal("redis://:a/b@cache"));
        assertEquals("the address is host:port: …@cache:6379", refusal("ann:secret@cache:6379"));
        assertEquals("the address is host:port: localhost", refusal("127.0.0.1:6379", "localhost"));
        assertEquals("no address was given", refusal());
        locks("::1:6379", "[::1]:6379").close();
    }

    private String refusal(String... addresses) {
        RwLocks.Library with = library();
        try {
            return assertThrows(IllegalArgumentException.class, () -> new RwLocks(with, addresses)).getMessage();
        } finally {
            with.close();
        }
    }

    @Test void row11_aWrongPortFailsAtOnce() {
        try (RwLocks nobody = locks("127.0.0.1:1")) {
            for (Options options : List.of(Options.NOW, SOON, Options.within(RwLocks.FOREVER))) {
                long start = System.nanoTime();
                assertThrows(RwLocks.Unreachable.class, () -> nobody.write(key, options));
                assertTrue(millisSince(start) < 1000);
            }
        }
        // Of several addresses the first may be down.
        try (RwLocks second = locks("127.0.0.1:1", URL.getHost() + ":" + URL.getPort())) {
            second.write(key).close();
        }
    }

    @Test void row12_afterCloseNothingRenewsAndNoThreadIsLeft() throws Exception {
        RwLocks mine = locks(URL.getHost() + ":" + URL.getPort());
        Held leased = mine.write(key, Options.NOW.withoutSession().withLease(Duration.ofMillis(600)));
        Held session = mine.write(key + ":2", Options.NOW.withLease(Duration.ofMinutes(1)));
        CompletableFuture<Void> waiter = CompletableFuture.runAsync(() -> mine.write(key, SOON).close());
        waiter();
        locks.close();
        mine.close();
        until(() -> Thread.getAllStackTraces().keySet().stream().noneMatch(thread -> thread.isAlive()
                && (thread.getName().startsWith("rwlock") || thread.getName().startsWith("lettuce"))));
        assertThrows(ExecutionException.class, waiter::get);
        until(() -> mode().equals("free"));
        until(() -> mode(key + ":2").equals("free"));
        assertTrue(leased.isLost() && session.isLost());
        assertThrows(RwLocks.NotHeld.class, leased::release);
        assertThrows(IllegalStateException.class, () -> mine.write(key));
    }

    @Test void row14_aServerWithoutTheModule() throws Exception {
        try (TestServer server = TestServer.plain().run(); RwLocks mine = locks(server.address())) {
            String told = assertThrows(RwLocks.ServerError.class, () -> mine.write(key, SOON)).getMessage();
            assertTrue(told.contains("the rwlock module is not loaded"), told);
        }
    }

    @Test void row15_howLongTheLockIsStillHeld() throws Exception {
        try (Held mine = locks.write(key, Options.NOW.withLease(Duration.ofMinutes(1)))) {
            RwLocks.TimedOut error = assertRefused(RwLocks.TimedOut.class, () -> locks.write(key));
            assertTrue(error.heldMillis() > 50_000 && error.heldMillis() <= 60_000, error.getMessage());
            assertTrue(error.getMessage().contains("ends in " + error.heldMillis() + " ms, unless it is renewed"),
                    error.getMessage());
            redis.persist(key);
            error = assertRefused(RwLocks.TimedOut.class, () -> locks.write(key));
            assertEquals(-1, error.heldMillis());
            assertTrue(error.getMessage().contains("without expiry"), error.getMessage());
        }
    }

    @Test void row16_deadlockIsAnError() throws Exception {
        Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = CompletableFuture.runAsync(() -> {
            try (Held second = locks.write(key + ":2", SOON); Held first = locks.write(key, SOON)) {
                assertFalse(first.isLost());
            }
        });
        waiter();
        assertInstanceOf(RwLocks.LockException.class,
                assertThrows(RwLocks.Deadlock.class, () -> locks.write(key + ":2", SOON)));
        mine.close();
        other.get();
    }

    @Test void row17_readersShareAndTokensIncrease() throws Exception {
        try (Held mine = locks.read(key)) {
            CompletableFuture.runAsync(() -> locks.read(key, SOON.withoutSession()).close()).get();
            assertRefused(RwLocks.TimedOut.class, () -> locks.write(key, Options.within(Duration.ofMillis(20))));
            assertThrows(IllegalStateException.class, mine::token);
        }
        long last = 0;
        for (int i = 0; i < 3; i++) {
            try (Held mine = locks.write(key, SOON.withFence())) {
                assertTrue(mine.token() > last);
                last = mine.token();
            }
        }
    }

    /** Jedis gives up reading after 2 s; so does Lettuce as it is set here. */
    @Test void aWaitOutlastsTheTimeoutOfTheLibrary() throws Exception {
        Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        long client = waiter();
        Thread.sleep(Protocol.DEFAULT_TIMEOUT + 1000); // longer than the timeouts
        assertEquals(client, waiter(), "it asked again");
        mine.close();
        other.get();
    }

    @Test void aWaitGoesOnAfterTheConnectionBroke() throws Exception {
        Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        long client = waiter();
        kill(client);
        until(() -> waiter() != client);
        mine.close();
        other.get();
    }

    @Test void aConnectionThatWasClosedWhileIdleCostsNoTry() {
        locks.write(key).close();
        redis.sendCommand(Protocol.Command.CLIENT, "KILL", "TYPE", "normal");
        locks.write(key).close();
    }

    @Test void aWaitAndALeaseOutliveAFailover() throws Exception {
        Held mine = locks.write(key, SOON.withoutSession());
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        waiter();
        redis.replicaof("127.0.0.1", 1);
        Thread.sleep(200); // for so long the server answers READONLY
        redis.replicaofNoOne();
        waiter();
        mine.close();
        other.get();
    }

    @Test void anInterruptedThreadGivesBack() {
        Held mine = locks.write(key);
        Thread.currentThread().interrupt();
        mine.close();
        assertTrue(Thread.interrupted());
        assertEquals("free", mode());
    }

    /** Jedis does not notice an interrupt. */
    @Test void anInterruptEndsAWaitOfLettuce() throws Exception {
        if (library.equals("jedis")) return;
        Held mine = locks.write(key);
        for (Options options : List.of(Options.within(RwLocks.FOREVER), SOON.withoutSession())) {
            AtomicReference<Throwable> told = new AtomicReference<>();
            Thread thread = new Thread(() -> {
                told.set(assertThrows(RwLocks.LockException.class, () -> locks.write(key, options)));
                assertTrue(Thread.currentThread().isInterrupted());
            });
            thread.start();
            waiter();
            thread.interrupt();
            thread.join(5_000);
            assertEquals("interrupted while waiting for a lock", told.get().getMessage());
            until(() -> (Long) in(inspect(key), "waiters_total") == 0);
        }
        mine.close();
        assertEquals("free", mode());
    }

    private CompletableFuture<Void> takeAndGiveBack(Options options) {
        return CompletableFuture.runAsync(() -> locks.write(key, options).close());
    }

    /** In another thread, which is another owner. */
    private static <T extends Throwable> T assertRefused(Class<T> type, Executable request) {
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        CompletableFuture.runAsync(() -> {
            try {
                request.execute();
            } catch (Throwable error) {
                thrown.set(error);
            }
        }).join();
        return assertInstanceOf(type, thrown.get());
    }

    private void kill(long client) {
        redis.sendCommand(Protocol.Command.CLIENT, "KILL", "ID", Long.toString(client));
    }

    private String moduleOf() {
        List<?> modules = (List<?>) redis.sendCommand(() -> "MODULE".getBytes(), "LIST");
        return text(in((List<?>) modules.get(0), "path"));
    }

    private synchronized List<?> inspect(String lock) {
        return (List<?>) redis.sendCommand(() -> "RWLOCK.INSPECT".getBytes(), lock);
    }

    private String mode() { return mode(key); }

    private String mode(String lock) { return text(in(inspect(lock), "mode")); }

    /** The first of the holders or waiters. */
    private List<?> first(String of) { return (List<?>) ((List<?>) in(inspect(key), of)).get(0); }

    /** The value behind a name: the reply is names and values in turn. */
    private static Object in(List<?> map, String name) {
        for (int i = 0; i < map.size(); i += 2) if (text(map.get(i)).equals(name)) return map.get(i + 1);
        throw new AssertionError(name + " is not there");
    }

    private static String text(Object bytes) { return new String((byte[]) bytes); }

    /** The id of the one client that waits for the lock. */
    private long waiter() {
        until(() -> ((List<?>) in(inspect(key), "waiters")).size() == 1);
        return (Long) in(first("waiters"), "client");
    }

    private static long millisSince(long start) { return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start); }

    static void until(BooleanSupplier condition) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "waited for too long");
            try {
                Thread.sleep(5); // between two looks
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
