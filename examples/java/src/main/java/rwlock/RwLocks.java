package rwlock;

import java.io.IOException;
import java.net.InetAddress;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import rwlock.Hold.Grip;

/**
 * Read/write locks of a Redis or Valkey server with the rwlock module.
 *
 * <pre>{@code
 * RwLocks locks = new RwLocks(new WithJedis(), "127.0.0.1:6379"); // one for the whole program
 * try (RwLocks.Held lock = locks.write("orders", Options.within(Duration.ofSeconds(5)))) {
 *     save(order);
 * }
 * }</pre>
 *
 * The thread that takes a lock owns it, as with the locks of Java. It may enter the lock again.
 * Each session and each wait has a connection of its own, because a session ends with its
 * connection, and because a wait blocks its connection.
 */
public final class RwLocks implements AutoCloseable {
    /** A wait without limit. */
    public static final Duration FOREVER = ChronoUnit.FOREVER.getDuration();

    /** What an acquisition asks for. */
    public record Options(Duration limit, Duration lease, boolean session, boolean fence, Duration linger) {
        /** Tries once, without waiting. A session, with a lease of 30 s. */
        public static final Options NOW = new Options(Duration.ZERO, Duration.ofSeconds(30), true, false, Duration.ZERO);

        /** Waits for so long at most. */
        public static Options within(Duration limit) { return NOW.withLimit(limit); }

        /** How long the hold outlives what keeps it alive. */
        public Options withLease(Duration lease) { return new Options(limit, lease, session, fence, linger); }

        /** A thread of RwLocks renews the lease. The hold survives a broken connection and a failover. */
        public Options withoutSession() { return new Options(limit, lease, false, fence, linger); }

        /** Hand out a fencing token for each write lock. */
        public Options withFence() { return new Options(limit, lease, session, true, linger); }

        /**
         * Keep a write lock for so long after its use, or until somebody else wants it. To enter it
         * again asks no server. The server needs {@code notify-keyspace-events Kd}.
         */
        public Options withLinger(Duration linger) { return new Options(limit, lease, session, fence, linger); }

        Options withLimit(Duration limit) { return new Options(limit, lease, session, fence, linger); }
    }

    /** The base of all errors that this class throws about a lock. */
    public static class LockException extends RuntimeException {
        LockException(String message, Throwable cause) { super(message, cause); }
    }

    /** The lock was not granted in time. */
    public static final class TimedOut extends LockException {
        static final long UNKNOWN = -2;
        private final long heldMillis;

        TimedOut(String lock, long heldMillis, Throwable cause) {
            super(lock + ": not granted in time: " + reason(heldMillis, cause), cause);
            this.heldMillis = heldMillis;
        }

        private static String reason(long heldMillis, Throwable cause) {
            if (heldMillis == UNKNOWN) return "no server was ready: " + cause.getMessage();
            if (heldMillis == -1) return "it is held without expiry";
            if (heldMillis == 0) return "others are ahead in its queue";
            return "its lease ends in " + heldMillis + " ms, unless it is renewed";
        }

        /**
         * In how many ms its lease ends, unless it is renewed. 0: others are ahead in its queue.
         * -1: it has no expiry. -2: no server was ready.
         */
        public long heldMillis() { return heldMillis; }
    }

    /** The hold ended before it was given back: somebody else may have worked meanwhile. */
    public static final class NotHeld extends LockException {
        NotHeld(String message) { super(message, null); }
    }

    /** Waiting would never end. Give back what you hold, and begin again. */
    public static final class Deadlock extends LockException {
        Deadlock(String message) { super(message, null); }
    }

    /** No server could be asked. The cause is the error of the client library. */
    public static final class Unreachable extends LockException {
        Unreachable(String lock, Throwable cause) { super(lock + ": no server could be asked: " + cause, cause); }
    }

    /** Any other error that the server replied. */
    public static final class ServerError extends LockException {
        public ServerError(String message) { super(message, null); }
    }

    /** A connection. Small enough to be written for any client library. */
    public interface Wire {
        /**
         * Sends a command and waits for the reply for so long, 0: without end.
         *
         * @return a Long, a List, or anything else for OK
         * @throws ServerError when the server replied an error
         * @throws IOException when the connection is broken, or the time is over
         */
        Object call(long millis, String... command) throws IOException;

        /** Whether the server keeps the connection open. Called only between commands. Sends nothing. */
        boolean isOpen();

        void close();
    }

    /** A connection that listens to the key events of a lock. */
    public abstract static class Ear {
        private static final String END = "";
        private final BlockingQueue<String> events = new LinkedBlockingQueue<>();
        volatile Consumer<String> atOnce = event -> {};

        /** The library calls this with each event. */
        public final void heard(String event) {
            atOnce.accept(event);
            events.add(event);
        }

        /** The library calls this when the connection ended. */
        public final void ended() { events.add(END); }

        public abstract void close();

        /** The next event, or null after so many ms. */
        final String next(long millis) throws IOException {
            try {
                String event = events.poll(millis, TimeUnit.MILLISECONDS);
                if (END.equals(event)) throw new IOException("the connection ended");
                return event;
            } catch (InterruptedException error) {
                throw new IOException(error);
            }
        }
    }

    /** How a client library connects. */
    public interface Library {
        /** Connects within so many ms. */
        Wire connect(String host, int port, long millis) throws IOException;

        /** Subscribes to {@code __keyspace@<database>__:<lock>}. */
        Ear listen(String host, int port, long millis, String lock) throws IOException;

        /** The slot of a key in a cluster. */
        int slot(String key);

        default void close() {}
    }

    static final long PATIENCE = 5000; // ms that an answer may take where nothing is waited for

    private final String process;
    final Servers servers;
    /** What each owner holds. The key is the owner and the lock's name. */
    final Map<List<String>, Grip> grips = new ConcurrentHashMap<>();
    /** The locks that this process keeps between two uses. */
    private final Map<String, Linger> lingers = new ConcurrentHashMap<>();
    final ScheduledThreadPoolExecutor keeper;

    /**
     * @param addresses {@code host:port} of the server; of several, those that a failover may
     *     make the primary, or some nodes of a cluster
     */
    public RwLocks(Library library, String... addresses) { this(programName(), library, List.of(addresses)); }

    private RwLocks(String name, Library library, List<String> addresses) {
        String client = cut(name, 80) + "@" + cut(hostName(), 60) + ":" + ProcessHandle.current().pid();
        process = client + ":" + UUID.randomUUID();
        servers = new Servers(library, client, addresses);
        keeper = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "rwlock-keeper");
            thread.setDaemon(true);
            return thread;
        });
        keeper.setRemoveOnCancelPolicy(true);
    }

    /** @param name of this program: the server shows it beside holds, waits and connections */
    public static RwLocks named(String name, Library library, String... addresses) {
        return new RwLocks(name, library, List.of(addresses));
    }

    /** Tries once to take the lock for reading. */
    public Held read(String lock) { return read(lock, Options.NOW); }

    /** Takes the lock for reading, beside other readers. */
    public Held read(String lock, Options options) { return all(List.of(lock), List.of(), options); }

    /** Tries once to take the lock for writing. */
    public Held write(String lock) { return write(lock, Options.NOW); }

    /** Takes the lock for writing, alone. */
    public Held write(String lock, Options options) { return all(List.of(), List.of(lock), options); }

    /** Takes all these locks in one step, or none. In a cluster they have to be in one slot. */
    public Held all(Collection<String> reads, Collection<String> writes, Options options) {
        Set<String> named = new HashSet<>();
        for (Collection<String> some : List.of(reads, writes)) {
            for (String lock : some) {
                if (!named.add(lock)) throw new IllegalArgumentException("lock " + lock + " is named twice");
            }
        }
        if (!options.linger.isZero()) {
            if (!reads.isEmpty() || writes.size() != 1) throw new IllegalArgumentException("linger: one lock to write");
            return linger(writes.iterator().next()).enter(options);
        }
        String owner = owner();
        Map<String, Boolean> missing = new LinkedHashMap<>();
        for (String lock : reads) if (!mayEnter(owner, lock, false, options)) missing.put(lock, false);
        for (String lock : writes) if (!mayEnter(owner, lock, true, options)) missing.put(lock, true);
        if (!missing.isEmpty()) new Hold(this, owner, missing, options).acquire(options);
        return new Held(owner, reads, writes);
    }

    private String owner() { return process + ":" + Thread.currentThread().getId(); }

    boolean isOfThisThread(String lock) { return grips.containsKey(List.of(owner(), lock)); }

    private Linger linger(String lock) {
        Linger linger = lingers.get(lock);
        return linger != null ? linger
                : lingers.computeIfAbsent(lock, name -> new Linger(this, name, process + ":linger:" + UUID.randomUUID()));
    }

    /** Whether this owner has the lock already. */
    private boolean mayEnter(String owner, String lock, boolean write, Options options) {
        Grip grip = grips.get(List.of(owner, lock));
        if (grip == null) {
            Linger linger = lingers.get(lock);
            if (linger == null || !linger.isMine()) return false;
            throw new Deadlock(lock + ": this thread holds it with linger");
        }
        if (grip.hold.isLost()) throw new NotHeld(lock + ": this thread lost its hold. Give it back first");
        if (write && grip.writers == 0) throw new Deadlock(lock + ": this thread reads it. Use upgrade() of that hold");
        if (write && options.fence && grip.token == null) {
            throw new IllegalStateException(lock + ": this thread took it without a fencing token");
        }
        return true;
    }

    /** Ends the connections and the renewing. Sessions end at once, other holds with their lease. */
    @Override public void close() {
        keeper.shutdownNow();
        grips.values().forEach(grip -> grip.hold.lose());
        servers.close();
        lingers.values().forEach(Linger::close);
        try {
            keeper.awaitTermination(PATIENCE, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** One or several locks that are held. */
    public final class Held implements AutoCloseable {
        final List<Grip> reads = new ArrayList<>();
        final List<Grip> writes = new ArrayList<>();
        volatile Runnable whenLost = () -> {};
        private final Linger linger;
        private boolean released;

        private Held(String owner, Collection<String> reads, Collection<String> writes) {
            linger = null;
            reads.forEach(lock -> this.reads.add(grips.get(List.of(owner, lock))));
            writes.forEach(lock -> this.writes.add(grips.get(List.of(owner, lock))));
            for (Grip grip : this.reads) grip.enter(this, false);
            for (Grip grip : this.writes) grip.enter(this, true);
        }

        Held(Linger linger, Grip grip) {
            this.linger = linger;
            writes.add(grip);
            grip.enter(this, true);
        }

        /** The fencing token, if one was asked for and this is one write lock. */
        public long token() {
            return tokens().values().stream().findFirst().orElseThrow(() -> new IllegalStateException("no token"));
        }

        /** The fencing token of each write lock, if they were asked for. */
        public Map<String, Long> tokens() {
            Map<String, Long> tokens = new LinkedHashMap<>();
            for (Grip grip : writes) if (grip.token != null) tokens.put(grip.lock, grip.token);
            return tokens;
        }

        /** Whether the hold is known to be lost. Asks no server. */
        public boolean isLost() { return holds().stream().anyMatch(Hold::isLost); }

        /**
         * Calls this when the hold is lost, from another thread, and never after release. To be
         * interrupted: {@code lock.onLost(Thread.currentThread()::interrupt)}. It must not block:
         * release waits for it.
         */
        public void onLost(Runnable callback) {
            whenLost = callback;
            if (isLost()) callback.run();
        }

        /** Asks the server whether the hold is still there, and renews it. Throws {@link NotHeld}. */
        public void check() { holds().forEach(hold -> hold.check(PATIENCE)); }

        /** From reading to writing without a gap. The options are for the wait and the token. */
        public void upgrade(Options options) {
            mustBeOpen();
            if (reads.size() != 1 || !writes.isEmpty()) throw new IllegalStateException("not one lock that is read");
            Grip grip = reads.get(0);
            if (grip.writers == 0) grip.hold.upgrade(grip, options);
            grip.writers++;
            grip.readers--;
            writes.add(reads.remove(0));
        }

        /** From writing to reading without a gap. Readers that wait get in. */
        public void downgrade() {
            mustBeOpen();
            if (writes.size() != 1 || !reads.isEmpty()) throw new IllegalStateException("not one lock that is written");
            if (linger != null) throw new IllegalStateException("a lock with linger is not read");
            Grip grip = writes.get(0);
            if (grip.writers == 1) grip.hold.downgrade(grip);
            grip.writers--;
            grip.readers++;
            reads.add(writes.remove(0));
        }

        /** Gives it back. Throws {@link NotHeld} when it was lost before. */
        public void release() {
            mustBeOpen();
            released = true;
            boolean interrupted = Thread.interrupted(); // else Lettuce would not even ask
            RuntimeException failed = null;
            if (linger != null) {
                failed = failure(() -> linger.leave(this));
            } else {
                for (Hold hold : holds()) {
                    RuntimeException error = failure(() -> hold.leave(this, false));
                    if (error != null) failed = error;
                }
            }
            if (interrupted) Thread.currentThread().interrupt();
            if (failed != null) throw failed;
        }

        /** {@link #release} at the end of a {@code try} block. Does nothing if it was called before. */
        @Override public void close() {
            if (!released) release();
        }

        private static RuntimeException failure(Runnable step) {
            try {
                step.run();
                return null;
            } catch (RuntimeException error) {
                return error;
            }
        }

        private void mustBeOpen() {
            if (released) throw new IllegalStateException("this hold was given back already");
        }

        private List<Hold> holds() {
            List<Grip> all = new ArrayList<>(reads);
            all.addAll(writes);
            return all.stream().map(grip -> grip.hold).distinct().toList();
        }
    }

    /** The name of the main class, or of the jar. */
    private static String programName() {
        String command = System.getProperty("sun.java.command", "java").split(" ")[0];
        return command.substring(command.lastIndexOf('/') + 1);
    }

    private static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (IOException unknown) {
            return "unknown";
        }
    }

    /** The server accepts no other characters in the name of a connection. */
    private static String cut(String name, int length) {
        return name.substring(0, Math.min(length, name.length())).replaceAll("[^!-~]", "-");
    }
}
