package rwlock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;

/** A server of one test's own: RWLOCK_SERVER with RWLOCK_MODULE. */
final class TestServer implements AutoCloseable {
    final int port;
    private final Path folder;
    private Process process;

    private TestServer() throws IOException {
        folder = Files.createTempDirectory("rwlock-java");
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
    }

    /** With the module that the other server has. */
    static TestServer start(Jedis other) throws Exception {
        String module = System.getenv("RWLOCK_MODULE");
        if (module == null) {
            List<?> modules = (List<?>) other.sendCommand(() -> "MODULE".getBytes(), "LIST");
            module = new String((byte[]) ((List<?>) modules.get(0)).get(5));
        }
        return plain().run("--loadmodule", module);
    }

    static TestServer plain() throws IOException { return new TestServer(); }

    TestServer run(String... arguments) throws Exception {
        String server = System.getenv().getOrDefault("RWLOCK_SERVER", "redis-server");
        List<String> command = new ArrayList<>(List.of(server, "--port", "" + port, "--save", "", "--dir",
                folder.toString(), "--logfile", folder.resolve("log").toString()));
        command.addAll(List.of(arguments));
        process = new ProcessBuilder(command).inheritIO().start();
        RwLocksTest.until(() -> {
            assertTrue(process.isAlive(), "the server does not start: see " + folder);
            try (Jedis redis = jedis()) {
                redis.info();
                return true;
            } catch (JedisException error) {
                return false;
            }
        });
        return this;
    }

    Jedis jedis() { return new Jedis("127.0.0.1", port); }

    String address() { return "127.0.0.1:" + port; }

    void kill() throws InterruptedException {
        process.destroyForcibly();
        assertTrue(process.waitFor(10, TimeUnit.SECONDS));
    }

    /** STOP or CONT: a server that is there and does nothing. */
    void signal(String name) throws Exception {
        int status = new ProcessBuilder("kill", "-" + name, "" + process.pid()).inheritIO().start().waitFor();
        assertTrue(status == 0);
    }

    @Override public void close() throws Exception {
        kill();
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }
}
