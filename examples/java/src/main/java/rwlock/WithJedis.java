package rwlock;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import jdk.net.ExtendedSocketOptions;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
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

    @Override public RwLocks.Wire connect(String host, int port, long millis) throws IOException {
        return connect(config, host, port, millis);
    }

    @Override public RwLocks.Ear listen(String host, int port, long millis, String lock) throws IOException {
        // With RESP3 Jedis would sort out the messages itself.
        JedisClientConfig plain = DefaultJedisClientConfig.builder().from(config).protocol(RedisProtocol.RESP2).build();
        JedisWire wire = connect(plain, host, port, millis);
        String channel = "__keyspace@" + config.getDatabase() + "__:" + lock;
        try {
            wire.connection.setSoTimeout((int) millis);
            wire.connection.sendCommand(Protocol.Command.SUBSCRIBE, channel);
            wire.connection.getOne();
            wire.connection.setTimeoutInfinite();
            JedisEar ear = new JedisEar(wire);
            Thread thread = new Thread(ear::read, "rwlock-listens");
            thread.setDaemon(true);
            thread.start();
            return ear;
        } catch (JedisDataException error) {
            wire.close();
            throw new RwLocks.ServerError(error.getMessage());
        } catch (JedisConnectionException error) {
            wire.close();
            throw new IOException(error);
        }
    }

    private static JedisWire connect(JedisClientConfig config, String host, int port, long millis) throws IOException {
        // It takes this time for each step: to connect, to log in, to say what library it is.
        JedisClientConfig limited = DefaultJedisClientConfig.builder().from(config)
                .timeoutMillis((int) Math.max(1, millis / 3)).build();
        Sockets sockets = new Sockets(new HostAndPort(host, port), limited);
        try {
            return new JedisWire(new Connection(sockets, limited), sockets.last);
        } catch (JedisConnectionException error) {
            throw new IOException(error);
        } catch (JedisDataException error) {
            throw new RwLocks.ServerError(error.getMessage());
        }
    }

    /** Keeps the socket in reach, and notices within half a minute that its server is gone. */
    private static final class Sockets extends DefaultJedisSocketFactory {
        private Socket last;

        Sockets(HostAndPort address, JedisClientConfig config) { super(address, config); }

        @Override public Socket createSocket() {
            last = super.createSocket();
            try {
                last.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, 15);
                last.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, 5);
                last.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, 3);
            } catch (IOException | UnsupportedOperationException error) {
                // This system has only its own settings.
            }
            return last;
        }
    }

    private static final class JedisEar extends RwLocks.Ear {
        private final JedisWire wire;

        JedisEar(JedisWire wire) { this.wire = wire; }

        /** In a thread of its own, because Jedis gives up a connection after a timeout. */
        void read() {
            try {
                while (true) {
                    List<?> message = (List<?>) wire.connection.getUnflushedObject();
                    heard(new String((byte[]) message.get(2), StandardCharsets.UTF_8));
                }
            } catch (RuntimeException broken) {
                ended();
            }
        }

        @Override public void close() { wire.close(); }
    }

    private record JedisWire(Connection connection, Socket socket) implements RwLocks.Wire {
        @Override public Object call(long millis, String... command) throws IOException {
            CommandArguments arguments = new CommandArguments(() -> command[0].getBytes(StandardCharsets.UTF_8));
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

        /** Jedis does not tell: it would have to read. Nothing can arrive but the end. */
        @Override public boolean isOpen() {
            try {
                socket.setSoTimeout(1);
                socket.getInputStream().read();
                return false;
            } catch (SocketTimeoutException nothing) {
                return true;
            } catch (IOException broken) {
                return false;
            }
        }

        @Override public void close() {
            try {
                connection.forceDisconnect();
            } catch (Exception alreadyClosed) {
                // It is what was wanted.
            }
        }
    }
}
