package rwlock;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import rwlock.Servers.Link;
import rwlock.Servers.Passing;

/**
 * A write lock that this process keeps after its use until somebody else wants it.
 *
 * <p>Who has {@code use} uses the lock, takes it or gives it back: one thread of the process at a
 * time. A thread listens to the lock's key events, renews what is kept, and gives it back.
 */
final class Linger {
    /** Somebody waits, or the hold ended: CLIENT KILL, FORCEUNLOCK, a lease that ran out. */
    private static final Set<String> ENDS = Set.of("rwlock.wait", "rwlock.release", "rwlock.expire");
    private static final long MOMENT = 50; // ms in which another thread has given back

    private final RwLocks all;
    private final String lock;
    /** Of no thread: who only keeps a lock must not be part of a deadlock. */
    private final String owner;
    private final ReentrantLock use = new ReentrantLock();
    private volatile Hold hold;
    private Hold.Grip grip;
    private volatile boolean kept; // nobody waited when the server was asked, after the grant
    private volatile boolean wanted; // give back as soon as nobody uses it
    private volatile boolean heard; // this server does send key events
    private volatile RwLocks.Ear ear;
    private volatile long lastUse = System.nanoTime();
    private volatile long linger;
    private volatile long lease = 1;

    Linger(RwLocks all, String lock, String owner) {
        this.all = all;
        this.lock = lock;
        this.owner = owner;
    }

    boolean isMine() { return use.isHeldByCurrentThread(); }

    RwLocks.Held enter(RwLocks.Options options) {
        long begun = System.nanoTime();
        if (!use.tryLock() && !waitForOtherThread(options.limit())) {
            throw new RwLocks.TimedOut(lock, options.lease().toMillis(), null);
        }
        linger = options.linger().toNanos();
        try {
            if (use.getHoldCount() > 1) {
                if (hold.lost()) throw new RwLocks.NotHeld(lock + ": this thread lost its hold. Give it back first");
            } else if (!isSafe(begun)) {
                giveBack();
                take(options, begun);
            }
            return all.new Held(this, grip);
        } catch (RuntimeException | Error failed) {
            use.unlock();
            throw failed;
        }
    }

    void leave(RwLocks.Held held) {
        if (!isMine()) throw new IllegalStateException(lock + ": with linger the thread that took it gives it back");
        Hold used = hold;
        try {
            boolean keep = use.getHoldCount() > 1 || stays();
            if (!keep) {
                kept = false;
                hold = null;
            }
            used.leave(held, keep);
        } finally {
            lastUse = System.nanoTime();
            use.unlock();
        }
        // An event that came before the unlock found the lock in use.
        if (wanted) giveBackUnused();
    }

    void close() {
        RwLocks.Ear open = ear;
        if (open != null) open.close();
    }

    /** Whether the hold is there for certain, without asking. A tenth of the lease is for clocks that differ. */
    private boolean isSafe(long now) {
        return kept && !wanted && !hold.lost() && now - hold.validTill() + lease / 10 < 0;
    }

    private boolean waitForOtherThread(Duration limit) {
        try {
            long most = limit.compareTo(Duration.ofDays(36_500)) > 0 ? Long.MAX_VALUE : limit.toNanos();
            return use.tryLock(Math.max(most, TimeUnit.MILLISECONDS.toNanos(MOMENT)), TimeUnit.NANOSECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RwLocks.LockException("interrupted while waiting for a lock", error);
        }
    }

    private void take(RwLocks.Options options, long begun) {
        if (all.isOfThisThread(lock)) throw new RwLocks.Deadlock(lock + ": this thread holds it without linger");
        lease = options.lease().toNanos();
        if (ear == null) listen(options.limit());
        Duration left = options.limit();
        if (!left.isZero()) left = left.minusNanos(System.nanoTime() - begun);
        if (left.isNegative()) left = Duration.ofMillis(1);
        RwLocks.Options asked = options.withFence().withLimit(left);
        Hold fresh = new Hold(all, owner, Map.of(lock, true), asked);
        fresh.acquire(asked);
        grip = all.grips.get(List.of(owner, lock));
        hold = fresh;
    }

    /** At the end of a use: whether the hold is kept. */
    private boolean stays() {
        if (kept) return !wanted;
        // Whoever began to wait before INSPECT is seen by it, whoever came later is heard.
        wanted = false;
        if (ear == null || !heard) return false;
        try {
            hold.check(RwLocks.PATIENCE);
            Object inspected = ask("RWLOCK.INSPECT", lock, "COUNT", "1");
            kept = (Long) field(inspected, "waiters_total") == 0;
        } catch (Passing | RuntimeException error) {
            return false; // giving back finds out what is wrong
        }
        return kept && !wanted;
    }

    /** Only with {@code use}. */
    private void giveBack() {
        kept = false;
        Hold old = hold;
        hold = null;
        if (old == null) return;
        try {
            old.end();
        } catch (RuntimeException error) {
            // It was lost, or is lost now. Nobody works under it.
        }
    }

    private void giveBackUnused() {
        if (!use.tryLock()) return; // in use: leave() looks again
        try {
            if (wanted) giveBack();
        } finally {
            use.unlock();
        }
    }

    /** Subscribes before the lock is taken. Without a subscription the lock does not linger. */
    private void listen(Duration limit) {
        long millis = limit.isZero() || limit.getSeconds() > 5 ? RwLocks.PATIENCE : Math.max(1, limit.toMillis());
        try {
            heard = sendsEvents();
            RwLocks.Ear fresh = all.servers.listen(lock, millis);
            // A thread that uses the lock right now sees it without the thread that listens.
            fresh.atOnce = event -> {
                if (ENDS.contains(event)) wanted = true;
            };
            ear = fresh;
            if (all.servers.closed()) fresh.close();
            Thread thread = new Thread(() -> listen(fresh), "rwlock-linger");
            thread.setDaemon(true);
            thread.start();
        } catch (Passing unreachable) {
            // To take the lock will fail too, or the next time will do.
        }
    }

    private boolean sendsEvents() throws Passing {
        String flags;
        try {
            flags = text(field(ask("CONFIG", "GET", "notify-keyspace-events"), "notify-keyspace-events"));
        } catch (RwLocks.ServerError forbidden) {
            return false; // until the event of an own grant is heard
        }
        if (flags.contains("K") && (flags.contains("d") || flags.contains("A"))) return true;
        throw new RwLocks.ServerError("linger needs key events: CONFIG SET notify-keyspace-events Kd");
    }

    private void listen(RwLocks.Ear mine) {
        try {
            long renewed = System.nanoTime();
            while (true) {
                long unused = use.isLocked() ? 0 : System.nanoTime() - lastUse;
                long pause = Math.min(linger - unused, lease / 3 - (System.nanoTime() - renewed));
                String event = mine.next(Math.max(1, TimeUnit.NANOSECONDS.toMillis(pause)));
                if ("rwlock.acquire".equals(event)) heard = true;
                if (event != null && wanted) giveBackUnused();
                if (System.nanoTime() - renewed >= lease / 3) {
                    renewed = System.nanoTime();
                    renew();
                }
                if (System.nanoTime() - lastUse >= linger && use.tryLock()) {
                    try {
                        if (System.nanoTime() - lastUse >= linger) {
                            giveBack();
                            ear = null;
                            return;
                        }
                    } finally {
                        use.unlock();
                    }
                }
            }
        } catch (IOException broken) {
            // From now on nobody would be heard.
            ear = null;
            wanted = true;
            giveBackUnused();
        } finally {
            mine.close();
        }
    }

    private void renew() {
        Hold held = hold;
        if (!kept || held == null) return;
        try {
            held.check(RwLocks.PATIENCE);
        } catch (RuntimeException error) {
            // Lost, or it is safe no longer when the lease is over.
        }
    }

    private Object ask(String... words) throws Passing {
        Link link = all.servers.link(lock, RwLocks.PATIENCE);
        boolean whole = true;
        try {
            return all.servers.call(link, lock, RwLocks.PATIENCE, List.of(words));
        } catch (Passing passing) {
            whole = !passing.gone;
            throw passing;
        } finally {
            if (whole) all.servers.giveBack(link);
        }
    }

    /** Of a map: names and values in turn, or entries. */
    private static Object field(Object map, String name) {
        List<?> parts = map instanceof Map<?, ?> entries ? List.copyOf(entries.entrySet()) : (List<?>) map;
        for (int i = 0; i < parts.size(); i++) {
            if (parts.get(i) instanceof Map.Entry<?, ?> entry) {
                if (text(entry.getKey()).equals(name)) return entry.getValue();
            } else if (text(parts.get(i++)).equals(name)) {
                return parts.get(i);
            }
        }
        throw new RwLocks.ServerError("no " + name + " in the reply");
    }

    private static String text(Object word) { return word instanceof byte[] bytes ? new String(bytes) : "" + word; }
}
