import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;

/** Clients of the server at RWLOCK_URL. */
final class Servers {
    /** For how long Redisson's watchdog makes a lock last, in ms. It renews every third of it. */
    static final long WATCHDOG = 3000;

    private static final URI URL = URI.create(System.getenv("RWLOCK_URL"));

    private Servers() {}

    static RedissonClient redisson() {
        Config config = new Config();
        config.setLockWatchdogTimeout(WATCHDOG);
        // More than there are threads: a thread that waits has a subscription.
        config.useSingleServer().setAddress(URL.toString()).setConnectionMinimumIdleSize(4)
                .setConnectionPoolSize(40).setSubscriptionConnectionPoolSize(40);
        return Redisson.create(config);
    }

    static Jedis jedis() {
        // No limit for an answer: a wait takes as long as it takes.
        return new Jedis(new HostAndPort(URL.getHost(), URL.getPort()),
                DefaultJedisClientConfig.builder().socketTimeoutMillis(0).build());
    }

    /** A client of the module: an owner with a connection. */
    static final class Owner implements AutoCloseable {
        final String name;
        final Jedis jedis = jedis();

        Owner(String name) { this.name = name; }

        private Object send(String command, String... arguments) {
            return jedis.sendCommand(command::getBytes, arguments);
        }

        /** Asks for a lock: {@code kind} is RLOCK or WLOCK. Whether it was granted. */
        boolean take(String kind, String key, long lease, String... options) {
            String[] words = new String[3 + options.length];
            words[0] = key;
            words[1] = name;
            words[2] = Long.toString(lease);
            System.arraycopy(options, 0, words, 3, options.length);
            return !(send("RWLOCK." + kind, words) instanceof Long);
        }

        boolean waitFor(String kind, String key, long lease, long timeout) {
            return take(kind, key, lease, "BLOCK", Long.toString(timeout));
        }

        long unlock(String key, String kind) { return (Long) send("RWLOCK.UNLOCK", key, name, kind); }

        void renew(String key, long lease) { send("RWLOCK.RENEW", key, name, Long.toString(lease)); }

        Map<String, Object> inspect(String key) {
            List<?> seen = (List<?>) send("RWLOCK.INSPECT", key);
            Map<String, Object> map = new HashMap<>();
            for (int i = 0; i < seen.size(); i += 2) {
                map.put(new String((byte[]) seen.get(i)), seen.get(i + 1));
            }
            return map;
        }

        @Override public void close() { jedis.close(); }
    }
}
