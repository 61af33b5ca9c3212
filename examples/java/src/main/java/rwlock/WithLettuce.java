package rwlock;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
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
                // Notices within half a minute that a server is gone.
                .socketOptions(SocketOptions.builder().keepAlive(SocketOptions.KeepAliveOptions.builder().enable()
                        .idle(Duration.ofSeconds(15)).interval(Duration.ofSeconds(5)).count(3).build()).build())
                .build());
    }

    @Override public int slot(String key) { return SlotHash.getSlot(key); }

    @Override public RwLocks.Wire connect(String host, int port, long millis) throws IOException {
        return new LettuceWire(arrived(client.connectAsync(StringCodec.UTF8, uri(host, port, millis)), millis));
    }

    @Override public RwLocks.Ear listen(String host, int port, long millis, String lock) throws IOException {
        StatefulRedisPubSubConnection<String, String> connection =
                arrived(client.connectPubSubAsync(StringCodec.UTF8, uri(host, port, millis)), millis);
        RwLocks.Ear ear = new RwLocks.Ear() {
            @Override public void close() { connection.closeAsync(); }
        };
        connection.addListener(new RedisPubSubAdapter<>() {
            @Override public void message(String channel, String event) { ear.heard(event); }
        });
        connection.addListener(new RedisConnectionStateListener() {
            @Override public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) { ear.ended(); }
        });
        try {
            connection.async().subscribe("__keyspace@" + template.getDatabase() + "__:" + lock)
                    .get(millis, TimeUnit.MILLISECONDS);
            return ear;
        } catch (InterruptedException error) {
            ear.close();
            throw interrupted();
        } catch (ExecutionException | TimeoutException | RedisException error) {
            ear.close();
            if (error.getCause() instanceof RedisCommandExecutionException answer) {
                throw new RwLocks.ServerError(answer.getMessage());
            }
            throw new IOException(error);
        }
    }

    private RedisURI uri(String host, int port, long millis) {
        return RedisURI.builder(template).withHost(host).withPort(port).withTimeout(Duration.ofMillis(millis)).build();
    }

    private static <C extends StatefulConnection<String, String>> C arrived(CompletionStage<C> coming, long millis)
            throws IOException {
        CompletableFuture<C> connection = coming.toCompletableFuture();
        try {
            return connection.get(millis, TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException error) {
            connection.thenAccept(StatefulConnection::closeAsync); // should it still come
            throw new IOException(error);
        } catch (InterruptedException error) {
            connection.thenAccept(StatefulConnection::closeAsync);
            throw interrupted();
        }
    }

    private record LettuceWire(StatefulRedisConnection<String, String> connection) implements RwLocks.Wire {
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
                throw new IOException(error);
            } catch (TimeoutException | RedisException error) {
                throw new IOException(error);
            } catch (InterruptedException error) {
                throw interrupted();
            }
        }

        @Override public boolean isOpen() { return connection.isOpen(); }

        @Override public void close() {
            if (connection.isOpen()) connection.close();
        }
    }

    private static IOException interrupted() {
        Thread.currentThread().interrupt(); // the pause before the next try ends it
        return new InterruptedIOException();
    }

    @Override public void close() { client.shutdown(0, 0, TimeUnit.SECONDS); }
}
