//! `INFO rwlock`: where it is, what it costs, what it says of now, of eviction
//! and of the background sweep. That its figures are right is for `figures.rs` beside it.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use crate::monitoring::figures::{assert_info_at_rest, info_figure};
use support::observe::{info_number, run};
use support::{
    assert_ok, call, int, library, list, text, unload, wait_synced, wait_until, Cluster, Crowd,
    Server,
};

/// All fields, without those that are there only at times.
pub const FIELDS: [&str; 23] = [
    "version",
    "acquired",
    "refused",
    "waited",
    "granted_after_waiting",
    "wait_ms_p50",
    "wait_ms_p99",
    "wait_ms_max",
    "timeouts",
    "released",
    "lapsed",
    "deadlocks",
    "disconnect_releases",
    "held_locks",
    "waiters",
    "queues",
    "session_holds",
    "hold_ms_p50",
    "hold_ms_p99",
    "hold_ms_max",
    "sweep",
    "sweep_percent",
    "pass_us_max",
];

/// The lines of the module's section, in their order.
fn section(con: &mut Connection, asked: &str) -> Vec<String> {
    let info = text(run(con, &format!("INFO {asked}")));
    let mut lines = info.lines().skip_while(|line| *line != "# rwlock");
    assert!(lines.next().is_some(), "INFO {asked}: {info}");
    lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_way_to_ask_gives_the_section() {
    let server = Server::builder().start();
    for mut con in [server.connection(), server.connection_resp3()] {
        wait_until("the sweep is over", || server.info("rwlock")["rwlock_sweep"] == "done");
        for asked in ["rwlock", "RWLOCK", "everything", "modules", "server rwlock clients"] {
            let lines = section(&mut con, asked);
            let mut found = Vec::new();
            for line in &lines {
                let (name, value) = line.split_once(':').expect("a name and a value");
                found.push(name.strip_prefix("rwlock_").expect("the module's prefix").to_owned());
                match name {
                    "rwlock_version" => assert_eq!(value, env!("CARGO_PKG_VERSION")),
                    "rwlock_sweep" => assert_eq!(value, "done"),
                    "rwlock_sweep_percent" => assert_eq!(value, "100"),
                    // The sweep was a pass.
                    "rwlock_pass_us_max" => assert!(value.parse::<u64>().is_ok(), "{value}"),
                    _ => assert_eq!(value, "0", "{name}"),
                }
            }
            assert_eq!(found, FIELDS, "INFO {asked}");
        }
        let others = text(run(&mut con, "INFO server clients"));
        assert!(!others.contains("rwlock_"), "{others}");
        // A script may ask too, as exporters do.
        let script = "return redis.call('INFO', 'rwlock')";
        assert!(text(call!(con, "EVAL", script, 0)).contains("rwlock_acquired:0"));
    }
}

#[test]
fn it_tells_of_now() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK a h 60000");
    crowd.ok("WLOCK b h 60000");
    let mut holder = crowd.client();
    for lock in ["c", "d"] {
        holder.send(&format!("RLOCK {lock} h 60000 SESSION"));
        holder.granted();
    }
    let now = |server: &Server| {
        ["waiters", "queues", "session_holds"].map(|field| info_figure(server, field))
    };
    assert_eq!(now(&server), [0, 0, 2]);
    let _reader = crowd.waits("RLOCK a r 1000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK a w 60000 BLOCK 0 SESSION");
    let other = crowd.waits("WLOCK b w 60000 BLOCK 0");
    assert_eq!(now(&server), [3, 2, 2]);
    drop(other);
    wait_until("one has left", || now(&server) == [2, 1, 2]);
    crowd.gives("UNLOCK a h", 1);
    crowd.gives("UNLOCK a r", 1);
    writer.granted();
    assert_eq!(now(&server), [0, 0, 3]);
    drop((writer, holder));
    wait_until("all are gone", || now(&server) == [0, 0, 0]);
    assert_eq!(info_figure(&server, "disconnect_releases"), 3);
    assert_info_at_rest(&server);
}

#[test]
fn nothing_but_unloading_takes_the_figures_back() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK a h 60000");
    assert!(crowd.refused("WLOCK a w 60000") > 0);
    // The server does not tell modules of it.
    crowd.plain("CONFIG RESETSTAT");
    crowd.plain("FLUSHALL");
    assert_eq!(["acquired", "refused"].map(|field| info_figure(&server, field)), [1, 1]);
    // What plain commands delete has neither lapsed nor been released.
    assert_eq!(["lapsed", "released"].map(|field| info_figure(&server, field)), [0, 0]);
}

#[test]
fn what_is_tried_inside_transactions_and_scripts_counts_as_well() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK a h 60000"));
    assert_ok(run(&mut con, "MULTI"));
    run(&mut con, "RWLOCK.WLOCK a h 60000").expect("queued");
    // Nobody waits there.
    run(&mut con, "RWLOCK.WLOCK a w 60000 BLOCK 0").expect("queued");
    assert_eq!(list(run(&mut con, "EXEC"))[0], Value::Okay);
    let script = "return redis.call('RWLOCK.WLOCK', KEYS[1], 'w', 1000, 'BLOCK', 0)";
    assert!(int(call!(con, "EVAL", script, 1, "a")) > 0);
    let figures = ["acquired", "refused", "waited", "waiters"];
    assert_eq!(figures.map(|field| info_figure(&server, field)), [2, 2, 0, 0]);
}

#[test]
fn asking_costs_the_same_however_much_there_is() {
    /// What an INFO may cost, in µs of the server's. Looking at every lock or
    /// waiter there is here would be ten times that.
    const LIMIT: f64 = 300.0;
    const LOCKS: usize = 50_000;
    let server = Server::builder().start();
    let mut con = server.connection();
    for number in 0..LOCKS / 100 {
        let mut pipe = redis::pipe();
        for lock in 0..100 {
            pipe.cmd("RWLOCK.WLOCK").arg(format!("lock{number}-{lock}")).arg("h").arg(600_000);
        }
        let _: Vec<Value> = pipe.query(&mut con).expect("take locks");
    }
    let mut crowd = Crowd::on(&server);
    let _waiters: Vec<_> =
        (0..100).map(|lock| crowd.waits(&format!("RLOCK lock0-{lock} r 1000 BLOCK 0"))).collect();
    assert_eq!(["waiters", "queues"].map(|field| info_figure(&server, field)), [100, 100]);
    // The best of some batches: the server counts the time that it had to wait
    // for a processor too.
    let mut best = f64::MAX;
    for _ in 0..5 {
        assert_ok(run(&mut con, "CONFIG RESETSTAT"));
        for _ in 0..200 {
            section(&mut con, "rwlock");
        }
        let stats = server.info("commandstats")["cmdstat_info"].clone();
        let per_call = stats.split(',').find_map(|part| part.strip_prefix("usec_per_call="));
        best = best.min(per_call.and_then(|cost| cost.parse().ok()).expect("a cost"));
    }
    println!("{best} us");
    assert!(best < LIMIT, "{best} us");
}

#[test]
fn a_replica_counts_for_itself() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK a h 60000"));
    assert_ok(run(&mut con, "RWLOCK.WLOCK short h 30"));
    wait_until("it has lapsed", || info_figure(&primary, "lapsed") == 1);
    wait_synced(&primary, &replica);
    let info = replica.info("rwlock");
    let counts = |field: &&&str| !["version", "sweep", "pass_us_max"].contains(*field);
    for field in FIELDS.iter().filter(counts) {
        assert_eq!(info[&format!("rwlock_{field}")], "0", "{field}");
    }
    assert_eq!(info["rwlock_sweep"], "idle");
    // What it refuses by its role is no request.
    let mut con = replica.connection();
    run(&mut con, "RWLOCK.WLOCK a h 60000").expect_err("READONLY");
    assert_eq!(info_figure(&replica, "acquired"), 0);

    assert_ok(run(&mut con, "REPLICAOF NO ONE"));
    wait_until("it has looked at all keys", || replica.info("rwlock")["rwlock_sweep"] == "done");
    assert_ok(run(&mut con, "RWLOCK.WLOCK a h 60000"));
    assert_eq!(info_figure(&replica, "acquired"), 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK a h ALL")), 1);
    assert_eq!(info_figure(&replica, "released"), 2);
}

#[test]
fn every_node_of_a_cluster_counts_for_itself() {
    let cluster = Cluster::start(3, 0);
    for lock in ["a", "b", "c", "d", "e", "f"] {
        let mut con = cluster.primary_for(lock.as_bytes()).connection();
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK {lock} h 60000")));
    }
    let mut sum = 0;
    for node in cluster.nodes() {
        wait_until("it has looked at all keys", || {
            let info = node.info("rwlock");
            info["rwlock_sweep"] == "done" && info["rwlock_sweep_percent"] == "100"
        });
        let mut con = node.connection();
        let keys = list(run(&mut con, "KEYS ?")).len() as u64;
        assert_eq!(info_figure(node, "acquired"), keys);
        sum += keys;
    }
    assert_eq!(sum, 6);
}

#[test]
fn the_sweep_says_how_far_it_is() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let library = library(&server);
    unload(&mut con);
    for db in [3, 0] {
        assert_ok(run(&mut con, &format!("SELECT {db}")));
        assert_ok(run(&mut con, "DEBUG POPULATE 40000 key 8"));
    }
    assert_ok(call!(con, "MODULE", "LOAD", library));
    let mut seen: BTreeMap<u64, String> = BTreeMap::new();
    let mut last = 0;
    wait_until("it is over", || {
        let info = server.info("rwlock");
        let (state, percent) = (&info["rwlock_sweep"], info_figure(&server, "sweep_percent"));
        if state == "running" {
            assert!(percent >= last, "{percent} after {last}");
            last = percent;
            seen.insert(percent, state.clone());
        }
        state == "done"
    });
    assert_eq!(info_figure(&server, "sweep_percent"), 100);
    // It goes on evenly over both databases.
    let between = seen.keys().filter(|percent| (10..=90).contains(*percent)).count();
    assert!(between >= 5, "{seen:?}");
}

fn warnings(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("can evict locks that are held")).count()
}

#[test]
fn a_policy_that_could_evict_locks_is_warned_of() {
    let warns = |server: &Server| server.info("rwlock").get("rwlock_warning").cloned();
    let plain = Server::builder().start();
    assert_eq!((warns(&plain), warnings(&plain)), (None, 0));

    let server = Server::builder()
        .config("maxmemory", "200mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let warning = warns(&server).expect("a warning");
    assert!(warning.contains("allkeys-lru") && warning.contains("noeviction"), "{warning}");
    assert_eq!(warnings(&server), 1);

    let mut con = server.connection();
    let mut logged = 1;
    for (name, value, risk) in [
        // Nothing that matters has changed.
        ("maxmemory", "100mb", true),
        ("hz", "20", true),
        ("maxmemory-policy", "noeviction", false),
        ("maxmemory-policy", "volatile-ttl", true),
        ("maxmemory-policy", "volatile-lru", true),
        ("maxmemory", "0", false),
        ("maxmemory-policy", "allkeys-random", false),
        ("maxmemory", "150mb", true),
    ] {
        let before = warns(&server);
        assert_ok(call!(con, "CONFIG", "SET", name, value));
        let after = warns(&server);
        assert_eq!(after.is_some(), risk, "{name} {value}");
        logged += usize::from(risk && before != after);
        assert_eq!(warnings(&server), logged, "{name} {value}");
    }
    assert_eq!(logged, 4);
    // It is about settings, not about what happens.
    assert_eq!(info_number(&server, "stats", "evicted_keys"), 0);
}

#[test]
fn the_report_of_a_crash_has_the_figures() {
    let server = Server::builder()
        .tolerate_in_log("BUG REPORT")
        // The test of the memory takes its time.
        .config("crash-memcheck-enabled", "no");
    let mut server = server.start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK a h 60000"));
    run(&mut con, "DEBUG SEGFAULT").expect_err("the connection is closed");
    wait_until("the report is written", || server.log().contains("BUG REPORT END"));
    let log = server.log();
    let report = log.split_once("MODULES INFO OUTPUT").expect("it tells of the modules").1;
    for field in ["rwlock_version", "rwlock_acquired:1", "rwlock_sweep"] {
        assert!(report.contains(field), "{field}: {report}");
    }
    server.kill9();
}
