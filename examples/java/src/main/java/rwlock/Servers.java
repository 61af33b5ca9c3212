package rwlock;

import java.io.IOException;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;

/** The connections of {@link RwLocks}: which server has a lock, and what its errors mean. */
final class Servers {
    /** A connection that one hold or one wait uses at a time. */
    static final class Link {
        final String node;
        final RwLocks.Wire wire;
        /** Whether it was idle before: the server may have closed it since. */
        boolean reused;

        Link(String node, RwLocks.Wire wire) {
            this.node = node;
            this.wire = wire;
        }
    }

    /** The request failed in a way that passes: ask again. */
    static final class Passing extends Exception {
        /** Whether this server is gone, or is not the one to ask: a session on it has ended. */
        final boolean gone;
        /** Whether there is nothing to wait for: another connection or another node will do. */
        final boolean atOnce;

        Passing(Throwable cause, boolean gone, boolean atOnce) {
            super(cause);
            this.gone = gone;
            this.atOnce = atOnce;
        }

        /** What the caller gets when there is no time to ask again. */
        RwLocks.LockException error(String lock, boolean once) {
            if (once && getCause() instanceof IOException) return new RwLocks.Unreachable(lock, getCause());
            return new RwLocks.TimedOut(lock, RwLocks.TimedOut.UNKNOWN, getCause());
        }
    }

    final int count;
    private final RwLocks.Library library;
    private final String clientName;
    private final List<String> seeds;
    private final Map<Integer, String> slots = new ConcurrentHashMap<>();
    private final Map<String, Deque<Link>> idle = new ConcurrentHashMap<>();
    private final Set<Link> open = ConcurrentHashMap.newKeySet();
    private volatile int seed;
    private volatile boolean reached;
    private volatile boolean closed;

    Servers(RwLocks.Library library, String clientName, List<String> seeds) {
        this.library = library;
        this.clientName = clientName;
        if (seeds.isEmpty()) throw new IllegalArgumentException("no address was given");
        for (String seed : seeds) {
            if (seed.matches("[^/@]+:\\d{1,5}")) continue;
            String shown = seed.replaceFirst("^(\\w+://)?.*@", "$1…@"); // it may have a password
            throw new IllegalArgumentException("the address is host:port"
                    + (seed.contains("://") ? ", not a URL: " : ": ") + shown);
        }
        this.seeds = seeds;
        count = seeds.size();
    }

    /** Whether a server has ever been connected. If not, the address may be wrong. */
    boolean reached() { return reached; }

    boolean closed() { return closed; }

    /** A connection to the server that has the key, made within so many ms. */
    Link link(String key, long millis) throws Passing {
        if (closed) throw new IllegalStateException("these RwLocks are closed");
        String node = slots.getOrDefault(library.slot(key), seeds.get(seed));
        Deque<Link> free = idle.get(node);
        Link link = free == null ? null : free.poll();
        if (link != null) return link;
        long start = System.nanoTime();
        int colon = node.lastIndexOf(':');
        try {
            link = new Link(node, library.connect(
                    node.substring(0, colon), Integer.parseInt(node.substring(colon + 1)), millis));
        } catch (IOException error) {
            lookElsewhere(node, key);
            throw new Passing(error, true, false);
        }
        open.add(link);
        reached = true;
        try {
            long left = millis - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            call(link, key, Math.max(1, left), List.of("CLIENT", "SETNAME", clientName));
        } catch (RwLocks.ServerError forbidden) {
            // The user may not name its connections. The locks work without.
        }
        return link;
    }

    /** Sends a command and waits for the reply for so many ms, 0: without end. */
    Object call(Link link, String key, long millis, List<String> words) throws Passing {
        try {
            return link.wire.call(millis, words.toArray(new String[0]));
        } catch (IOException error) {
            drop(link);
            if (closed) throw new IllegalStateException("these RwLocks are closed", error);
            lookElsewhere(link.node, key);
            throw new Passing(error, true, link.reused);
        } catch (RwLocks.ServerError error) {
            String message = String.valueOf(error.getMessage());
            switch (message.split(" ", 2)[0]) {
                case "NOTHELD": throw new RwLocks.NotHeld(message);
                case "DEADLOCK": throw new RwLocks.Deadlock(message);
                case "MOVED":
                    slots.put(library.slot(key), message.split(" ")[2]);
                    drop(link);
                    throw new Passing(error, true, true);
                case "READONLY", "LOADING", "MASTERDOWN":
                    drop(link);
                    lookElsewhere(link.node, key);
                    throw new Passing(error, true, false);
                case "UNBLOCKED", "TRYAGAIN", "ASK", "CLUSTERDOWN":
                    throw new Passing(error, false, false);
                default:
                    if (!message.contains("unknown command")) throw error;
                    throw new RwLocks.ServerError("the rwlock module is not loaded in " + link.node
                            + ", or is too old for " + words.get(0));
            }
        }
    }

    /** A connection that listens to the key events of a lock, made within so many ms. */
    RwLocks.Ear listen(String lock, long millis) throws Passing {
        if (closed) throw new IllegalStateException("these RwLocks are closed");
        String node = slots.getOrDefault(library.slot(lock), seeds.get(seed));
        int colon = node.lastIndexOf(':');
        try {
            return library.listen(node.substring(0, colon), Integer.parseInt(node.substring(colon + 1)), millis, lock);
        } catch (IOException error) {
            lookElsewhere(node, lock);
            throw new Passing(error, true, false);
        }
    }

    void giveBack(Link link) {
        link.reused = true;
        idle.computeIfAbsent(link.node, node -> new ConcurrentLinkedDeque<>()).push(link);
        if (closed) drop(link);
    }

    void drop(Link link) {
        open.remove(link);
        link.wire.close();
    }

    /** Later requests ask the next address. */
    private synchronized void lookElsewhere(String node, String key) {
        Deque<Link> broken = idle.remove(node);
        if (broken != null) broken.forEach(this::drop);
        slots.remove(library.slot(key), node);
        if (seeds.get(seed).equals(node)) seed = (seed + 1) % count;
    }

    void close() {
        closed = true;
        open.forEach(this::drop);
        library.close();
    }
}
