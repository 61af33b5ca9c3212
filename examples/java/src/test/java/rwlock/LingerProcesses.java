package rwlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import rwlock.RwLocks.Held;
import rwlock.RwLocks.Options;

/**
 * Processes that keep a lock until another one wants it, on the server at an address:
 *
 * <pre>
 * speed  address          entries a second, and how long another process waits for a kept lock
 * rounds address number   hand-overs between two processes, which are killed at random
 * </pre>
 */
final class LingerProcesses {
    private static final Options ASK = Options.within(Duration.ofSeconds(20));
    private static final Options KEEP = ASK.withLinger(Duration.ofSeconds(10));
    private static final long LOOK = 5000; // ms in which the end of a killed process is seen
    /** Leaves a mark under the lock, unless there is one or a larger token was seen. */
    private static final String MARK = "local mark = redis.call('GET', KEYS[1]) "
            + "if mark then return mark end "
            + "if tonumber(redis.call('GET', KEYS[2]) or '0') > tonumber(ARGV[2]) then return 'a larger token' end "
            + "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[2]) return ARGV[1]";
    private static final String UNMARK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])";

    private final String address;
    private final String key;
    private final Jedis redis;

    private LingerProcesses(String address, String key) {
        this.address = address;
        this.key = key;
        redis = new Jedis(address.split(":")[0], Integer.parseInt(address.split(":")[1]));
    }

    public static void main(String[] words) throws Exception {
        String key = words.length > 3 ? words[3] : "linger:" + UUID.randomUUID();
        LingerProcesses here = new LingerProcesses(words[1], key);
        here.redis.configSet("notify-keyspace-events", "Kd");
        switch (words[0]) {
            case "speed" -> here.speed();
            case "rounds" -> here.rounds(Integer.parseInt(words[2]), new Random().nextLong());
            case "spin" -> here.spin();
            case "work" -> here.work();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private RwLocks locks() { return RwLocks.named("linger", new WithJedis(), address); }

    private Process start(String role) throws Exception {
        return new ProcessBuilder(ProcessHandle.current().info().command().orElse("java"), "-cp",
                System.getProperty("java.class.path"), "-XX:+UseSerialGC", "-Xmx64m",
                LingerProcesses.class.getName(), role, address, "", key).inheritIO().start();
    }

    /** How many commands the server has executed. */
    static long requests(Jedis redis) {
        return redis.info("commandstats").lines().filter(line -> !line.matches("cmdstat_(info|config).*"))
                .mapToLong(line -> line.startsWith("cmdstat_") ? Long.parseLong(line.split("[=,]")[1]) : 0).sum();
    }

    void speed() throws Exception {
        try (RwLocks mine = locks()) {
            double[] rates = new double[2];
            for (Options options : List.of(ASK, KEEP)) {
                int some = options == ASK ? 2_000 : 1_000_000;
                enter(mine, options, some);
                enter(mine, options, some); // the first ones are slower
                long before = requests(redis), begun = System.nanoTime();
                enter(mine, options, options == ASK ? 20_000 : 5_000_000);
                double seconds = (System.nanoTime() - begun) / 1e9;
                double rate = (options == ASK ? 20_000 : 5_000_000) / seconds;
                rates[options == ASK ? 0 : 1] = rate;
                System.out.printf("%s linger: %,.0f entries/s, %d requests in %.1f s%n",
                        options == ASK ? "without" : "with", rate, requests(redis) - before, seconds);
            }
            System.out.printf("ratio: %,.0f%n", rates[1] / rates[0]);
        }
        Process spinning = start("spin");
        try (RwLocks mine = locks()) {
            while (redis.get(key + ":spins") == null) Thread.sleep(10);
            List<Double> waits = new ArrayList<>();
            for (int i = 0; i < 1_020; i++) {
                Thread.sleep(5);
                long begun = System.nanoTime();
                mine.write(key, ASK).release();
                waits.add((System.nanoTime() - begun) / 1e6);
            }
            report("entered all the time by another process", waits.subList(20, waits.size()));
        } finally {
            spinning.destroyForcibly().waitFor();
        }
    }

    private void enter(RwLocks mine, Options options, int times) {
        for (int i = 0; i < times; i++) mine.write(key, options).close();
    }

    private static void report(String what, List<Double> waits) {
        List<Double> sorted = new ArrayList<>(waits);
        Collections.sort(sorted);
        System.out.printf("%s: waited %.2f ms in the median, %.2f in 99 of 100, %.2f at most, %d times%n", what,
                sorted.get(sorted.size() / 2), sorted.get(sorted.size() * 99 / 100), sorted.get(sorted.size() - 1),
                sorted.size());
    }

    private void spin() {
        try (RwLocks mine = locks()) {
            for (long i = 1; ; i++) {
                mine.write(key, KEEP).close();
                if (i == 100_000) redis.set(key + ":spins", "1");
            }
        }
    }

    /** Two processes in turn, one of which is killed now and then. Throws if there were ever two holders. */
    void rounds(int number, long seed) throws Exception {
        Random random = new Random(seed);
        Process[] two = {start("work"), start("work")};
        int kills = 0;
        try {
            long last = 0, moved = System.nanoTime();
            while (last < number) {
                Thread.sleep(random.nextInt(150) + 10);
                String wrong = redis.get(key + ":wrong");
                if (wrong != null) throw new AssertionError(wrong + " (seed " + seed + ")");
                String count = redis.get(key + ":rounds");
                long now = count == null ? 0 : Long.parseLong(count);
                if (now > last) moved = System.nanoTime();
                if (System.nanoTime() - moved > 60_000_000_000L) throw new AssertionError("nothing moves after " + now);
                last = now;
                int one = random.nextInt(2);
                int luck = random.nextInt(32);
                if (luck == 0) {
                    redis.sendCommand(Protocol.Command.CLIENT, "KILL", "TYPE", "pubsub");
                } else if (luck < 10 && redis.exists(key + ":" + two[one].pid())) { // it has begun: the two do meet
                    two[one].destroyForcibly().waitFor();
                    two[one] = start("work");
                    kills++;
                }
            }
        } finally {
            for (Process one : two) one.destroyForcibly().waitFor();
        }
        String wrong = redis.get(key + ":wrong");
        if (wrong != null) throw new AssertionError(wrong + " (seed " + seed + ")");
        List<Double> waits = redis.lrange(key + ":waits", 0, -1).stream().map(Double::parseDouble).toList();
        System.out.printf("%s hand-overs, %s entries, %d kills, never two holders%n", redis.get(key + ":rounds"),
                redis.get(key + ":entries"), kills);
        report("both in turn", waits);
    }

    private void work() throws Exception {
        String me = "" + ProcessHandle.current().pid();
        Random random = new Random();
        try (RwLocks mine = locks()) {
            long token = 0;
            while (true) {
                long begun = System.nanoTime();
                try (Held held = mine.write(key, KEEP)) {
                    double waited = (System.nanoTime() - begun) / 1e6;
                    mark(me, held.token());
                    if (held.token() != token) {
                        redis.incr(key + ":rounds");
                        if (token != 0) redis.rpush(key + ":waits", "" + waited);
                        redis.set(key + ":" + me, "begun");
                    }
                    token = held.token();
                    redis.incr(key + ":entries");
                    if (random.nextInt(10) == 0) Thread.sleep(1);
                    redis.sendCommand(Protocol.Command.EVAL, UNMARK, "1", key + ":mark", me);
                }
                if (random.nextInt(4) == 0) Thread.sleep(random.nextInt(4));
            }
        }
    }

    /** The lock is ours: nobody else may work, and nobody with a later token may have worked. */
    private void mark(String me, long token) throws Exception {
        String first = null;
        for (long end = System.nanoTime() + LOOK * 1_000_000; ; Thread.sleep(1)) {
            String mark = new String((byte[]) redis.sendCommand(Protocol.Command.EVAL, MARK, "2", key + ":mark",
                    key + ":token", me, "" + token));
            if (mark.equals(me)) {
                if (first != null) wrong(me + " met the mark of " + first + ", which then took it away");
                return;
            }
            if (first == null) first = mark;
            if (!mark.equals(first)) wrong(me + " met the marks of " + first + " and " + mark);
            if (!mark.matches("[0-9]+")) wrong(me + " met " + mark + " than " + token);
            // A process that was killed in its work leaves its mark.
            if (ProcessHandle.of(Long.parseLong(mark)).isEmpty()) {
                redis.sendCommand(Protocol.Command.EVAL, UNMARK, "1", key + ":mark", mark);
                first = null;
            } else if (System.nanoTime() > end) {
                wrong(me + " met the mark of " + mark);
            }
        }
    }

    private void wrong(String what) {
        redis.set(key + ":wrong", what);
        throw new AssertionError(what);
    }
}
