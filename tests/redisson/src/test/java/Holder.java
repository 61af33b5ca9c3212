import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;

/**
 * A process that takes a lock, says so, and holds it until it is killed.
 * Arguments: redisson, lease or session; read or write; the lock.
 */
final class Holder {
    public static void main(String[] args) throws Exception {
        boolean read = args[1].equals("read");
        switch (args[0]) {
            case "redisson" -> {
                RReadWriteLock both = Servers.redisson().getReadWriteLock(args[2]);
                RLock lock = read ? both.readLock() : both.writeLock();
                lock.lock(); // the watchdog renews it
            }
            case "lease" -> new Servers.Owner("holder").take(read ? "RLOCK" : "WLOCK", args[2], 3000);
            case "session" ->
                new Servers.Owner("holder").take(read ? "RLOCK" : "WLOCK", args[2], 60_000, "SESSION");
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println("held");
        TimeUnit.MINUTES.sleep(5);
    }
}
