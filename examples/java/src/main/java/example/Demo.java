package example;

import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import rwlock.RwLocks;
import rwlock.RwLocks.Options;

/** Readers and writers in processes of their own, on one lock, as a timeline. */
public final class Demo {
    public static void main(String[] args) throws Exception {
        if (args.length == 3) {
            take(args[0], args[1], Long.parseLong(args[2]));
            return;
        }
        String library = args.length > 0 ? args[0] : "jedis";
        String start = Long.toString(System.currentTimeMillis());
        List<Process> processes = new ArrayList<>();
        for (String who : List.of("reader-1", "reader-2", "reader-3", "writer-1", "writer-2")) {
            processes.add(new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "-cp", System.getProperty("java.class.path"), Demo.class.getName(), library, who, start)
                    .inheritIO().start());
        }
        int failed = 0;
        for (Process process : processes) failed += process.waitFor() == 0 ? 0 : 1;
        System.exit(failed);
    }

    private static void take(String library, String who, long start) throws Exception {
        URI uri = URI.create(System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379"));
        Random random = new Random();
        Options options = Options.within(Duration.ofSeconds(5));
        try (RwLocks locks = new RwLocks(Worker.library(library), uri.getHost() + ":" + uri.getPort())) {
            for (int round = 0; round < 3; round++) {
                Thread.sleep(random.nextInt(200));
                say(start, who, "asks");
                if (who.startsWith("writer")) {
                    try (RwLocks.Held lock = locks.write("demo", options.withFence())) {
                        say(start, who, "          WRITES  (token " + lock.token() + ")");
                        Thread.sleep(100);
                        say(start, who, "          done");
                    }
                } else {
                    try (RwLocks.Held lock = locks.read("demo", options)) {
                        say(start, who, "     reads");
                        Thread.sleep(150);
                        say(start, who, "     done");
                    }
                }
            }
        }
    }

    private static void say(long start, String who, String what) {
        System.out.println(String.format("%5d ms  %s  %s", System.currentTimeMillis() - start, who, what));
    }
}
