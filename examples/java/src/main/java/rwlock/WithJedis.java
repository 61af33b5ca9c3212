package rwlock;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.JedisClusterCRC16;

/** Connects {@link RwLocks} with Jedis. */
public final class WithJedis implements RwLocks.Library {
    private final JedisClientConfig config;

    public WithJedis() { this(DefaultJedisClientConfig.builder().build()); }

    /** @param config user, password, TLS and so on */
    public WithJedis(JedisClientConfig config) { this.config = config; }

    @Override public int slot(String key) { return JedisClusterCRC16.getSlot(key); }

    @Override public RwLocks.Wire connect(String host, int port) throws IOException {
        Connection connection;
        try {
            connection = new Connection(new HostAndPort(host, port), config);
        } catch (JedisConnectionException error) {
            throw new IOException(error);
        }
        return new RwLocks.Wire() {
            @Override public Object call(long millis, String... command) throws IOException {
                CommandArguments arguments =
                        new CommandArguments(() -> command[0].getBytes(StandardCharsets.UTF_8));
                Arrays.stream(command).skip(1).forEach(arguments::add);
                try {
                    // Jedis waits 2 s for a reply if nothing else is said.
                    connection.setSoTimeout((int) Math.min(millis, Integer.MAX_VALUE));
                    return connection.executeCommand(arguments);
                } catch (JedisDataException error) {
                    throw new RwLocks.ServerError(error.getMessage());
                } catch (JedisConnectionException error) {
                    throw new IOException(error);
                }
            }

            @Override public void close() {
                try {
                    connection.forceDisconnect();
                } catch (Exception alreadyClosed) {
                    // It is what was wanted.
                }
            }
        };
    }
}
