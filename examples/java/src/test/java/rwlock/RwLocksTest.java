package rwlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import rwlock.RwLocks.Options;

/** On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a moment. */
@ParameterizedClass
@Timeout(60)
@ValueSource(strings = {"jedis", "lettuce"})
class RwLocksTest {
    private static final URI URL = URI.create(System.getenv("RWLOCK_URL"));
    private static final Options SOON = Options.within(Duration.ofSeconds(20));
    private final Jedis redis = new Jedis(URL.getHost(), URL.getPort());
    private final String key = "java:" + UUID.randomUUID();
    private final RwLocks locks;

    RwLocksTest(String library) {
        // As a user would who wants its other commands to answer soon.
        RedisURI impatient = new RedisURI();
        impatient.setTimeout(Duration.ofSeconds(2));
        RwLocks.Library with = library.equals("jedis") ? new WithJedis() : new WithLettuce(impatient);
        locks = new RwLocks(with, URL.getHost() + ":" + URL.getPort());
    }

    @AfterEach void end() {
        locks.close();
        redis.close();
    }

    @Test void readersShareAndWritersExclude() throws Exception {
        try (RwLocks.Held mine = locks.read(key, Options.FOREVER)) {
            CompletableFuture.runAsync(() -> locks.read(key, SOON.withSession()).close()).get();
            Exception refused = assertThrows(Exception.class, () -> CompletableFuture.runAsync(
                    () -> locks.write(key, Options.within(Duration.ofMillis(20)))).get());
            assertEquals(RwLocks.TimedOut.class, refused.getCause().getClass());
            assertThrows(IllegalStateException.class, () -> locks.read(key, SOON));
            assertFalse(mine.isLost());
        }
        long last = 0;
        for (int i = 0; i < 3; i++) {
            try (RwLocks.Held mine = locks.write(key, SOON.withFence())) {
                assertTrue(mine.token() > last);
                last = mine.token();
            }
        }
    }

    /** Jedis gives up reading after 2 s; so does Lettuce as it is set here. */
    @Test void aWaitOutlastsTheTimeoutOfTheLibrary() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        long client = waiter();
        Thread.sleep(Protocol.DEFAULT_TIMEOUT + 1000);
        assertEquals(client, waiter(), "it asked again");
        mine.close();
        other.get();
    }

    @Test void aLeaseIsRenewedAndItsLossIsTold() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON.withLease(Duration.ofMillis(300)));
        Thread.sleep(900);
        mine.check();
        redis.sendCommand(() -> "RWLOCK.FORCEUNLOCK".getBytes(), key);
        until(mine::isLost);
        assertThrows(RwLocks.NotHeld.class, mine::check);
        assertThrows(RwLocks.NotHeld.class, mine::close);
        mine.close(); // a second time does nothing
    }

    @Test void aSessionEndsWithItsConnection() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON.withSession().withLease(Duration.ofMinutes(1)));
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        waiter();
        List<?> seen = (List<?>) redis.sendCommand(() -> "RWLOCK.INSPECT".getBytes(), key);
        List<?> holder = (List<?>) ((List<?>) seen.get(5)).get(0);
        kill((Long) holder.get(9));
        other.get();
        assertThrows(RwLocks.NotHeld.class, mine::close);
    }

    @Test void deadlockIsAnError() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = CompletableFuture.runAsync(() -> {
            try (RwLocks.Held second = locks.write(key + ":2", SOON); RwLocks.Held first = locks.write(key, SOON)) {
                assertFalse(first.isLost());
            }
        });
        waiter();
        assertThrows(RwLocks.Deadlock.class, () -> locks.write(key + ":2", SOON));
        mine.close();
        other.get();
    }

    @Test void aWaitGoesOnAfterTheConnectionBroke() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        long client = waiter();
        kill(client);
        until(() -> waiter() != client);
        mine.close();
        other.get();
    }

    @Test void aWaitGoesOnAfterAFailover() throws Exception {
        RwLocks.Held mine = locks.write(key, SOON);
        CompletableFuture<Void> other = takeAndGiveBack(SOON);
        waiter();
        redis.replicaof("127.0.0.1", 1);
        Thread.sleep(200);
        redis.replicaofNoOne();
        waiter();
        mine.close();
        other.get();
    }

    private CompletableFuture<Void> takeAndGiveBack(Options options) {
        return CompletableFuture.runAsync(() -> locks.write(key, options).close());
    }

    private void kill(long client) {
        redis.sendCommand(Protocol.Command.CLIENT, "KILL", "ID", Long.toString(client));
    }

    /** The id of the one client that waits for the lock. */
    private long waiter() {
        long[] client = {0};
        until(() -> {
            List<?> seen = (List<?>) redis.sendCommand(() -> "RWLOCK.INSPECT".getBytes(), key);
            List<?> waiters = (List<?>) seen.get(9);
            if (waiters.size() == 1) client[0] = (Long) ((List<?>) waiters.get(0)).get(9);
            return waiters.size() == 1;
        });
        return client[0];
    }

    private static void until(BooleanSupplier condition) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "waited for too long");
            try {
                Thread.sleep(5);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
