package rwlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import rwlock.Servers.Link;
import rwlock.Servers.Passing;

/** What the server knows of: the locks that an owner took in one step. */
final class Hold {
    private static final long GRACE = 500; // ms that an answer may take beyond the wait
    private static final long PAUSE = 50; // ms between two tries on a server that is not ready
    private static final long WATCH = 250; // ms between two looks at the connection of a session

    private final RwLocks all;
    private final Servers servers;
    private final String owner;
    private final Map<String, Boolean> locks; // true: to write
    private final String first; // leads to the server in a cluster
    private final String names;
    private final long lease;
    private final boolean session;
    private final Set<RwLocks.Held> entered = ConcurrentHashMap.newKeySet();
    private final ReentrantLock busy = new ReentrantLock(); // held while the link is in use
    private Link link; // the connection of a session
    private ScheduledFuture<?> keeping;
    private volatile long validTill; // nanoTime at which the lease ends at the earliest
    private volatile boolean lost;
    private volatile boolean ended;

    Hold(RwLocks all, String owner, Map<String, Boolean> locks, RwLocks.Options options) {
        this.all = all;
        servers = all.servers;
        this.owner = owner;
        this.locks = locks;
        first = locks.keySet().iterator().next();
        names = String.join(", ", locks.keySet());
        lease = options.lease().toMillis();
        session = options.session();
    }

    void acquire(RwLocks.Options options) {
        List<String> reads = locks.keySet().stream().filter(lock -> !locks.get(lock)).toList();
        List<String> writes = locks.keySet().stream().filter(locks::get).toList();
        List<String> command = new ArrayList<>();
        if (locks.size() == 1) {
            command.addAll(List.of(writes.isEmpty() ? "RWLOCK.RLOCK" : "RWLOCK.WLOCK", first, owner, "" + lease));
        } else {
            command.addAll(List.of("RWLOCK.MLOCK", owner, "" + lease));
            if (!reads.isEmpty()) command.addAll(List.of("READ", "" + reads.size()));
            command.addAll(reads);
            if (!writes.isEmpty()) command.addAll(List.of("WRITE", "" + writes.size()));
            command.addAll(writes);
        }
        List<?> reply = request(options.limit(), options.fence() && !writes.isEmpty(), command);
        long pause = session ? WATCH : Math.max(1, lease / 3);
        keeping = all.keeper.scheduleWithFixedDelay(this::keep, pause, pause, TimeUnit.MILLISECONDS);
        for (String lock : locks.keySet()) all.grips.put(List.of(owner, lock), new Grip(this, lock));
        for (int i = 1; i < reply.size(); i++) {
            all.grips.get(List.of(owner, writes.get(i - 1))).token = (Long) reply.get(i);
        }
    }

    void upgrade(Grip grip, RwLocks.Options options) {
        if (session) busy.lock(); // a plain lease has to be renewed meanwhile
        try {
            List<?> reply = request(options.limit(), options.fence(),
                    List.of("RWLOCK.UPGRADE", grip.lock, owner, "" + lease));
            grip.token = reply.size() > 1 ? (Long) reply.get(1) : null;
        } catch (RwLocks.NotHeld error) {
            lose();
            throw error;
        } finally {
            if (session) busy.unlock();
        }
    }

    void downgrade(Grip grip) {
        send(RwLocks.PATIENCE, List.of("RWLOCK.DOWNGRADE", grip.lock, owner, "" + lease));
        grip.token = null;
    }

    void check(long limit) {
        long asked = System.nanoTime();
        List<String> command = new ArrayList<>();
        if (locks.size() == 1) {
            command.addAll(List.of("RWLOCK.RENEW", first, owner, "" + lease));
        } else {
            command.addAll(List.of("RWLOCK.MRENEW", owner, "" + lease));
            command.addAll(locks.keySet());
        }
        send(limit, command);
        validTill = asked + TimeUnit.MILLISECONDS.toNanos(lease);
    }

    /** Runs in the keeper: watches the connection of a session, or renews the lease. */
    void keep() {
        try {
            if (!session && !lost && !busy.isLocked()) check(Math.max(100, Math.min(RwLocks.PATIENCE, lease / 3)));
        } catch (RuntimeException error) {
            // NotHeld is noted already. After another error there may be time to try again.
        }
        isLost();
    }

    /** Whether it was noticed. {@link #isLost} looks. */
    boolean lost() { return lost; }

    /** The nanoTime at which the lease ends, if it is not renewed. */
    long validTill() { return validTill; }

    boolean isLost() {
        if (lost || ended) return lost;
        if (!session && System.nanoTime() - validTill > 0) lose();
        if (session && busy.tryLock()) {
            try {
                if (!ended && !link.wire.isOpen()) lose();
            } finally {
                busy.unlock();
            }
        }
        return lost;
    }

    void lose() {
        synchronized (entered) {
            if (lost) return;
            lost = true;
        }
        keeping.cancel(false);
        for (RwLocks.Held held : entered) {
            try {
                held.whenLost.run();
            } catch (RuntimeException error) {
                Thread here = Thread.currentThread();
                here.getUncaughtExceptionHandler().uncaughtException(here, error);
            }
        }
    }

    /** The last one out gives the locks back, if they are not kept for the next one. */
    void leave(RwLocks.Held held, boolean keep) {
        busy.lock();
        try {
            entered.remove(held);
            for (Grip grip : held.reads) if (grip.hold == this) grip.readers--;
            for (Grip grip : held.writes) if (grip.hold == this) grip.writers--;
            if (entered.isEmpty() && !keep) {
                end();
            } else {
                if (lost) throw new RwLocks.NotHeld(names + ": the hold was lost");
                for (Grip grip : held.writes) {
                    if (grip.hold == this && grip.writers == 0 && grip.readers > 0) downgrade(grip);
                }
            }
        } finally {
            busy.unlock();
        }
    }

    /** Gives the locks back. */
    void end() {
        busy.lock();
        try {
            unlock();
        } finally {
            busy.unlock();
        }
    }

    private void unlock() {
        ended = true;
        keeping.cancel(false);
        for (String lock : locks.keySet()) all.grips.remove(List.of(owner, lock));
        List<String> command = new ArrayList<>();
        if (locks.size() == 1) {
            command.addAll(List.of("RWLOCK.UNLOCK", first, owner, "ALL"));
        } else {
            command.addAll(List.of("RWLOCK.MUNLOCK", owner, "ALL", "" + locks.size()));
            command.addAll(locks.keySet());
        }
        try {
            send(RwLocks.PATIENCE, command);
        } catch (RwLocks.NotHeld error) {
            if (session && !servers.closed()) giveBackElsewhere(command);
            throw error;
        } finally {
            if (link != null) servers.giveBack(link);
        }
    }

    /** After a failover the new primary keeps a session's hold until its lease ends. */
    private void giveBackElsewhere(List<String> command) {
        try {
            Link other = servers.link(first, GRACE);
            servers.call(other, first, GRACE, command);
            servers.giveBack(other);
        } catch (Passing | RuntimeException error) {
            // There is nothing to give back, or nobody to give it back to.
        }
    }

    /** Asks until the locks are granted or the time is up. Returns OK and the tokens, or nothing. */
    private List<?> request(Duration limit, boolean fence, List<String> command) {
        Wait wait = new Wait(limit);
        boolean bound = link != null; // an upgrade of a session: no other connection will do
        // To hang up on a session would lose what it has.
        long grace = bound || wait.none ? RwLocks.PATIENCE : GRACE;
        Link used = link;
        int failed = 0, hurried = 0;
        try {
            while (true) {
                try {
                    if (used == null) used = servers.link(first, wait.left(grace));
                    List<String> words = new ArrayList<>(command);
                    if (!wait.none) words.addAll(List.of("BLOCK", "" + (wait.endless ? 0 : wait.left(0))));
                    if (session) words.add("SESSION");
                    if (fence) words.add("FENCE");
                    words.add("ONCE"); // a request that is sent again after a lost reply counts once
                    Object reply = servers.call(used, first, wait.endless ? 0 : wait.left(grace), words);
                    if (reply instanceof Long heldMillis) throw new RwLocks.TimedOut(names, heldMillis, null);
                    validTill = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(lease);
                    if (session) link = used;
                    return reply instanceof List<?> parts ? parts : List.of();
                } catch (Passing passing) {
                    if (passing.gone && bound) throw new RwLocks.NotHeld(names + ": the connection broke");
                    if (passing.gone) used = null;
                    if (wait.isOver()) throw passing.error(names, false);
                    if (passing.atOnce && ++hurried < 5) continue;
                    // An address that never answered may be wrong: no time is spent on it.
                    boolean once = wait.none || !servers.reached();
                    if (once && ++failed >= servers.count) throw passing.error(names, true);
                    if (!once) pause();
                }
            }
        } finally {
            if (used != null && used != link) servers.giveBack(used);
        }
    }

    /** Sends what does not wait: RENEW, DOWNGRADE, UNLOCK. */
    private void send(long limit, List<String> command) {
        Wait wait = new Wait(Duration.ofMillis(limit));
        boolean renews = command.get(0).endsWith("RENEW");
        busy.lock();
        try {
            for (boolean again = false; ; again = true) {
                if (lost) throw new RwLocks.NotHeld(names + ": the hold was lost");
                Link used = link;
                try {
                    if (used == null) used = servers.link(first, wait.left(0));
                    Object reply = servers.call(used, first, wait.left(0), command);
                    // MRENEW and MUNLOCK say for each lock whether it was held.
                    if (reply instanceof List<?> each && each.contains(renews ? 0L : -1L)) {
                        throw new RwLocks.NotHeld(names + ": " + each + ": not all are held");
                    }
                    return;
                } catch (RwLocks.NotHeld error) {
                    // The lease cannot have ended: the first request got through.
                    if (again && !renews && !session && System.nanoTime() - validTill < 0) return;
                    lose();
                    throw error;
                } catch (Passing passing) {
                    if (passing.gone) used = null;
                    if (passing.gone && session) {
                        lose();
                        throw new RwLocks.NotHeld(names + ": the connection broke");
                    }
                    if (wait.isOver()) throw passing.error(names, true);
                    if (!passing.atOnce) pause();
                } finally {
                    if (used != null && used != link) servers.giveBack(used);
                }
            }
        } finally {
            busy.unlock();
        }
    }

    /** One of the locks, and how often its owner entered it. */
    static final class Grip {
        final Hold hold;
        final String lock;
        int readers;
        int writers;
        Long token;

        private Grip(Hold hold, String lock) {
            this.hold = hold;
            this.lock = lock;
        }

        void enter(RwLocks.Held held, boolean write) {
            if (write) writers++;
            else readers++;
            hold.entered.add(held);
        }
    }

    /** The time that a caller waits. */
    private static final class Wait {
        final boolean none;
        final boolean endless;
        private final long end;

        Wait(Duration limit) {
            none = limit.isZero() || limit.isNegative();
            endless = limit.compareTo(Duration.ofDays(36_500)) > 0; // more would not fit into a long
            end = System.nanoTime() + (endless ? 0 : limit.toNanos());
        }

        boolean isOver() { return !none && !endless && end - System.nanoTime() <= 0; }

        /** What is left of it and of so many ms more, at least 1. */
        long left(long more) {
            if (endless) return RwLocks.PATIENCE;
            return Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()) + more);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RwLocks.LockException("interrupted while waiting for a lock", error);
        }
    }
}
