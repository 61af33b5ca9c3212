package example;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import rwlock.RwLocks;
import rwlock.RwLocks.Options;

/** Readers and writers in threads of their own, on one lock, as a timeline. */
public final class Demo {
    /** Argument: jedis or lettuce. */
    public static void main(String[] args) throws Exception {
        URI uri = URI.create(System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379"));
        ExecutorService threads = Executors.newCachedThreadPool();
        try (RwLocks locks = new RwLocks(Worker.library(args.length > 0 ? args[0] : "jedis"),
                uri.getHost() + ":" + uri.getPort())) {
            long start = System.currentTimeMillis();
            List<Future<?>> taken = new ArrayList<>();
            for (String who : List.of("reader-1", "reader-2", "reader-3", "writer-1", "writer-2")) {
                taken.add(threads.submit((Callable<Void>) () -> take(locks, who, start)));
            }
            for (Future<?> one : taken) one.get();
        } finally {
            threads.shutdown();
        }
    }

    private static Void take(RwLocks locks, String who, long start) throws InterruptedException {
        Random random = new Random();
        Options options = Options.within(Duration.ofSeconds(5));
        for (int round = 0; round < 3; round++) {
            Thread.sleep(random.nextInt(200)); // so that they do not all ask at once
            say(start, who, "asks");
            if (who.startsWith("writer")) {
                try (RwLocks.Held lock = locks.write("demo", options.withFence())) {
                    say(start, who, "          WRITES  (token " + lock.token() + ")");
                    Thread.sleep(100); // stands for the work
                    say(start, who, "          done");
                }
            } else {
                try (RwLocks.Held lock = locks.read("demo", options)) {
                    say(start, who, "     reads");
                    Thread.sleep(150); // stands for the work
                    say(start, who, "     done");
                }
            }
        }
        return null;
    }

    private static void say(long start, String who, String what) {
        System.out.println(String.format("%5d ms  %s  %s", System.currentTimeMillis() - start, who, what));
    }
}
