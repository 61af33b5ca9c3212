package rwlock;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * The read/write locks of the rwlock module. Owners are threads, as with the locks of Java.
 *
 * <pre>{@code
 * try (RwLocks.Held lock = locks.write("orders", Options.within(Duration.ofSeconds(5)))) {
 *     save(order);
 * }
 * }</pre>
 *
 * Each lock that is held or waited for has a connection of its own: a command that waits blocks
 * its connection, and a session lives as long as its connection. Idle ones are used again.
 */
public final class RwLocks implements AutoCloseable {
    /** A connection. Small enough to be written for any client library. */
    public interface Wire extends AutoCloseable {
        /**
         * Sends a command and waits for the reply for so long, 0: without end.
         *
         * @return a Long, a List, or anything else for OK
         * @throws ServerError when the server replied an error
         * @throws IOException when the connection is broken, or the time is over
         */
        Object call(long millis, String... command) throws IOException;

        @Override void close();
    }

    /** How a client library connects. */
    public interface Library extends AutoCloseable {
        Wire connect(String host, int port) throws IOException;

        int slot(String key);

        @Override default void close() {}
    }

    /** An error that the server replied. */
    public static class ServerError extends RuntimeException {
        public ServerError(String message) { super(message); }
    }

    /** Not granted in time. */
    public static final class TimedOut extends RuntimeException {
        TimedOut(String key, Throwable cause) { super("not granted in time: " + key, cause); }
    }

    /** The lock was lost before it was given back: somebody else may have worked meanwhile. */
    public static final class NotHeld extends ServerError {
        NotHeld(String message) { super(message); }
    }

    /** Waiting would never end. Give back what you hold, and begin again. */
    public static final class Deadlock extends ServerError {
        Deadlock(String message) { super(message); }
    }

    /** What an acquisition asks for. */
    public record Options(Duration limit, Duration lease, boolean session, boolean fence) {
        /** Waits for ever, with a lease of 30 s that is renewed. */
        public static final Options FOREVER =
                new Options(Duration.ZERO, Duration.ofSeconds(30), false, false);

        public static Options within(Duration limit) {
            return new Options(limit.isZero() ? Duration.ofMillis(1) : limit, FOREVER.lease, false, false);
        }

        /** How long the lock outlives a crash of this process. */
        public Options withLease(Duration lease) { return new Options(limit, lease, session, fence); }

        /** The server renews it, and it ends with its connection, at once when this process dies. */
        public Options withSession() { return new Options(limit, lease, true, fence); }

        /** Hand out a fencing token. For writers. */
        public Options withFence() { return new Options(limit, lease, session, true); }
    }

    private static final long GRACE = 10_000; // ms that an answer may take beyond the wait
    private static final long PAUSE = 50; // ms between two tries on a server that is not ready

    private record Node(String host, int port) {}

    private final String id = UUID.randomUUID().toString();
    private final Library library;
    private final List<Node> seeds = new ArrayList<>();
    private volatile int seed;
    private final Map<Integer, Node> slots = new ConcurrentHashMap<>();
    private final Map<Node, Deque<Wire>> idle = new ConcurrentHashMap<>();
    private final Set<String> held = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService renewer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "rwlock-renewer");
        thread.setDaemon(true);
        return thread;
    });

    /**
     * @param addresses {@code host:port} of the server; of several, those that a failover may
     *     make the primary, or some nodes of a cluster
     */
    public RwLocks(Library library, String... addresses) {
        this.library = library;
        for (String address : addresses) seeds.add(node(address));
    }

    /** Takes the lock for reading, beside other readers. */
    public Held read(String key, Options options) { return take("READ", "RWLOCK.RLOCK", key, options); }

    /** Takes the lock for writing, alone. */
    public Held write(String key, Options options) { return take("WRITE", "RWLOCK.WLOCK", key, options); }

    /** Closes the idle connections. Give your locks back before. */
    @Override public void close() {
        renewer.shutdownNow();
        idle.values().forEach(wires -> wires.forEach(Wire::close));
        library.close();
    }

    private Held take(String kind, String command, String key, Options options) {
        String owner = id + ":" + Thread.currentThread().getId();
        Held lock = new Held(kind, key, owner, options);
        if (!held.add(lock.name())) {
            throw new IllegalStateException("this thread has the lock already: hand it on: " + key);
        }
        boolean granted = false;
        try {
            lock.acquire(command);
            granted = true;
        } finally {
            if (!granted) {
                held.remove(lock.name());
                lock.giveBackWire();
            }
        }
        return lock;
    }

    /** A lock that is held. */
    public final class Held implements AutoCloseable {
        private final String kind;
        private final String key;
        private final String owner;
        private final Options options;
        private final long lease;
        private Node node;
        private Wire wire;
        private long token;
        private long validTill; // nanoTime at which the lease ends at the earliest
        private volatile boolean lost;
        private boolean open = true;
        private Future<?> renewal;

        private Held(String kind, String key, String owner, Options options) {
            this.kind = kind;
            this.key = key;
            this.owner = owner;
            this.options = options;
            lease = options.lease.toMillis();
        }

        private String name() { return owner + " " + kind + " " + key; }

        /** The fencing token, if one was asked for. */
        public long token() { return token; }

        /** Whether the lock is known to be lost. A session lock is not watched: {@link #check}. */
        public boolean isLost() { return lost; }

        /** Asks the server whether the lock is still held, and renews it. Throws {@link NotHeld}. */
        public synchronized void check() {
            long asked = System.nanoTime();
            call(GRACE, "RWLOCK.RENEW", key, owner, Long.toString(lease));
            validTill = asked + TimeUnit.MILLISECONDS.toNanos(lease);
        }

        private void acquire(String command) {
            long start = System.nanoTime();
            long wait = options.limit.toMillis();
            while (true) {
                long left = wait == 0 ? 0 : Math.max(1, wait - millisSince(start));
                // ONCE: asking again after a lost answer does not count twice.
                List<String> words = new ArrayList<>(List.of(command, key, owner, Long.toString(lease),
                        "BLOCK", Long.toString(left), "ONCE"));
                if (options.session) words.add("SESSION");
                if (options.fence) words.add("FENCE");
                try {
                    Object reply = call(left == 0 ? 0 : left + GRACE, words.toArray(new String[0]));
                    if (reply instanceof Long) throw new TimedOut(key, null);
                    if (reply instanceof List<?> granted) token = (Long) granted.get(1);
                    break;
                } catch (Passing passing) {
                    if (wait != 0 && millisSince(start) >= wait) throw new TimedOut(key, passing);
                    pause();
                }
            }
            validTill = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(lease);
            if (!options.session) {
                long third = Math.max(1, lease / 3);
                renewal = renewer.scheduleWithFixedDelay(this::renew, third, third, TimeUnit.MILLISECONDS);
            }
        }

        private synchronized void renew() {
            if (!open || lost) return;
            try {
                check();
            } catch (NotHeld error) {
                lost = true;
            } catch (RuntimeException error) {
                lost = System.nanoTime() - validTill > 0; // else there is time to try again
            }
        }

        /** Gives the lock back. Throws {@link NotHeld} when it was lost before. */
        @Override public synchronized void close() {
            if (!open) return;
            open = false;
            if (renewal != null) renewal.cancel(false);
            held.remove(name());
            try {
                for (boolean again = false; ; again = true) {
                    try {
                        call(GRACE, "RWLOCK.UNLOCK", key, owner, kind);
                        return;
                    } catch (NotHeld error) {
                        // In time, so the lease cannot have lapsed: the first request got through.
                        if (again && !options.session && System.nanoTime() - validTill < 0) return;
                        throw error;
                    } catch (Passing error) {
                        if (System.nanoTime() - validTill >= 0) throw error;
                        pause();
                    }
                }
            } finally {
                giveBackWire();
            }
        }

        private void giveBackWire() {
            if (wire != null) idle.computeIfAbsent(node, n -> new ConcurrentLinkedDeque<>()).push(wire);
            wire = null;
        }

        /** Asks the server that has the key. Throws {@link Passing} when to ask again. */
        private Object call(long millis, String... command) {
            try {
                if (wire == null) {
                    node = slots.getOrDefault(library.slot(key), seeds.get(seed));
                    Deque<Wire> free = idle.get(node);
                    wire = free == null ? null : free.poll();
                    if (wire == null) wire = library.connect(node.host, node.port);
                }
                return wire.call(millis, command);
            } catch (ServerError error) {
                String message = String.valueOf(error.getMessage());
                switch (message.split(" ", 2)[0]) {
                    case "NOTHELD": throw new NotHeld(message);
                    case "DEADLOCK": throw new Deadlock(message);
                    case "MOVED":
                        giveBackWire();
                        slots.put(library.slot(key), node(message.split(" ")[2]));
                        return call(millis, command);
                    case "READONLY":
                        lookElsewhere();
                        throw new Passing(error);
                    case "UNBLOCKED", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN":
                        throw new Passing(error);
                    default: throw error;
                }
            } catch (IOException error) {
                lookElsewhere();
                throw new Passing(error);
            }
        }

        /** The connection is broken, or not one to a primary. */
        private void lookElsewhere() {
            if (wire != null) wire.close();
            wire = null;
            Deque<Wire> others = idle.remove(node);
            if (others != null) others.forEach(Wire::close);
            if (slots.remove(library.slot(key)) == null || seeds.contains(node)) seed = (seed + 1) % seeds.size();
        }
    }

    /** What a failover, a restart or a moving slot answers: ask again. */
    private static final class Passing extends RuntimeException {
        Passing(Throwable cause) { super(cause); }
    }

    private static Node node(String address) {
        int colon = address.lastIndexOf(':');
        return new Node(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
    }

    private static long millisSince(long start) { return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start); }

    private static void pause() {
        try {
            Thread.sleep(PAUSE);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for a lock", error);
        }
    }
}
