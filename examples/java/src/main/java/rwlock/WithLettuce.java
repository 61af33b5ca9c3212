package rwlock;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Connects {@link RwLocks} with Lettuce. */
public final class WithLettuce implements RwLocks.Library {
    private final RedisURI template;
    private final RedisClient client = RedisClient.create();

    public WithLettuce() { this(new RedisURI()); }

    /** @param template user, password, TLS and so on; its address is not used */
    public WithLettuce(RedisURI template) {
        this.template = template;
        client.setOptions(ClientOptions.builder()
                // Else Lettuce gives up any command after 60 s, though the server goes on with it,
                .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build())
                // and reconnects by itself, and sends what was waiting once more.
                .autoReconnect(false)
                .build());
    }

    @Override public int slot(String key) { return SlotHash.getSlot(key); }

    @Override public RwLocks.Wire connect(String host, int port) throws IOException {
        RedisURI uri = RedisURI.builder(template).withHost(host).withPort(port).build();
        StatefulRedisConnection<String, String> connection;
        try {
            connection = client.connect(StringCodec.UTF8, uri);
        } catch (RedisException error) {
            throw new IOException(error);
        }
        return new RwLocks.Wire() {
            @Override public Object call(long millis, String... command) throws IOException {
                CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
                Arrays.stream(command).skip(1).forEach(arguments::add);
                // Asynchronous: the synchronous calls have a timeout of their own.
                try {
                    RedisFuture<List<Object>> reply = connection.async().dispatch(
                            () -> command[0].getBytes(StandardCharsets.UTF_8),
                            new NestedMultiOutput<>(StringCodec.UTF8), arguments);
                    List<Object> parts = millis == 0 ? reply.get() : reply.get(millis, TimeUnit.MILLISECONDS);
                    return parts.size() == 1 ? parts.get(0) : parts; // it wraps a single value
                } catch (ExecutionException error) {
                    if (error.getCause() instanceof RedisCommandExecutionException answer) {
                        throw new RwLocks.ServerError(answer.getMessage());
                    }
                    if (error.getCause() instanceof RedisException || error.getCause() instanceof IOException) {
                        throw new IOException(error);
                    }
                    throw new IllegalStateException(error);
                } catch (TimeoutException | RedisException error) {
                    throw new IOException(error);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt(); // the pause before the next try ends it
                    throw new InterruptedIOException();
                }
            }

            @Override public void close() {
                if (connection.isOpen()) connection.close();
            }
        };
    }

    @Override public void close() { client.shutdown(0, 0, TimeUnit.SECONDS); }
}
