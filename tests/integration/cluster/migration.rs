//! A slot on its way from one node of a cluster to another, key by key.

use redis::Connection;

use support::observe::{assert_same_keys, clock, ends_at, inspect, keyspace, run};
use support::{assert_error, assert_ok, bytes, call, int, list, slot, text, Cluster, Server};

const LOCK: &str = "lock";

/// Everything that may be asked of a lock.
const LINES: [&str; 11] = [
    "RLOCK lock a 60000",
    "RLOCK lock d 60000 ONCE",
    "WLOCK lock a 60000",
    "WLOCK lock d 60000 RESERVE 60000",
    "UNLOCK lock a",
    "UNLOCK lock a ALL",
    "RENEW lock b 90000",
    "UPGRADE lock a 60000",
    "DOWNGRADE lock a 60000",
    "FORCEUNLOCK lock",
    "INSPECT lock",
];

/// Sets the slot's state in a node's eyes.
fn set_slot(node: &Server, state: &[&str]) {
    let mut con = node.connection();
    let number = slot(LOCK.as_bytes()).to_string();
    let words = ["CLUSTER", "SETSLOT", &number].into_iter().chain(state.iter().copied());
    assert_ok(support::send(&mut con, words));
}

fn id(node: &Server) -> String {
    text(run(&mut node.connection(), "CLUSTER MYID"))
}

/// The keys of the lock's slot that a node has.
fn keys(node: &Server) -> Vec<String> {
    let line = format!("CLUSTER GETKEYSINSLOT {} 100", slot(LOCK.as_bytes()));
    let mut keys: Vec<_> = list(run(&mut node.connection(), &line)).into_iter().map(text).collect();
    keys.sort();
    keys
}

fn move_keys(from: &Server, to: &Server, keys: &[&str]) {
    let line = format!("MIGRATE 127.0.0.1 {} X 0 10000 KEYS {}", to.port(), keys.join(" "));
    let words = line.split(' ').map(|word| if word == "X" { "" } else { word });
    assert_ok(support::send(&mut from.connection(), words));
}

fn asking(con: &mut Connection, line: &str) -> redis::RedisResult<redis::Value> {
    assert_ok(run(con, "ASKING"));
    run(con, line)
}

/// The two nodes, with the lock at the first: read-held twice by a, once by b,
/// and reserved by c.
fn nodes(cluster: &Cluster) -> (&Server, &Server) {
    let from = cluster.primary_for(LOCK.as_bytes());
    let to = cluster.nodes().iter().find(|node| node.port() != from.port());
    let to = to.expect("there are three");
    let mut con = from.connection();
    for line in ["RLOCK lock a 60000", "RLOCK lock a 70000", "RLOCK lock b 80000"] {
        assert_ok(run(&mut con, &format!("RWLOCK.{line}")));
    }
    assert!(int(run(&mut con, "RWLOCK.WLOCK lock c 60000 RESERVE 65000")) > 0);
    (from, to)
}

#[test]
fn a_lock_on_the_move_says_try_again_and_survives() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let (mut source, mut target) = (from.connection(), to.connection());
    let mut first = keys(from);
    assert_eq!(first.len(), 5);
    let before = keyspace(from);
    let ends_before: Vec<i64> = first.iter().map(|key| ends_at(&mut source, key)).collect();

    // Begun and given up again.
    set_slot(to, &["IMPORTING", &id(from)]);
    set_slot(from, &["MIGRATING", &id(to)]);
    assert_nobody_serves(&mut source, &mut target, from.port());
    let neighbour = (0..).map(|number| format!("lock-{number}"));
    let neighbour = neighbour
        .map(|name| (cluster.primary_for(name.as_bytes()).port(), name))
        .find_map(|(port, name)| (port == from.port()).then_some(name))
        .expect("a lock in another slot of the same node");
    assert_ok(run(&mut source, &format!("RWLOCK.WLOCK {neighbour} a 60000")));
    assert_eq!(int(run(&mut source, &format!("RWLOCK.UNLOCK {neighbour} a"))), 1);
    set_slot(from, &["STABLE"]);
    set_slot(to, &["STABLE"]);
    assert_same_keys("nothing has changed", &before, &keyspace(from));
    assert_eq!(int(inspect(&mut source, LOCK, "holders_total")), 2);

    // Carried through; while it is under way first the timeouts are missing at
    // the source, then the hash.
    set_slot(to, &["IMPORTING", &id(from)]);
    set_slot(from, &["MIGRATING", &id(to)]);
    let started = clock(&mut source);
    move_keys(from, to, &["{lock}:a:rwlock_timeout:1", "{lock}:wait_write"]);
    assert_nobody_serves(&mut source, &mut target, from.port());
    move_keys(from, to, &[LOCK]);
    for line in LINES {
        let line = format!("RWLOCK.{line}");
        let ask = assert_error(run(&mut source, &line), "ASK");
        assert!(ask.ends_with(&format!(" 127.0.0.1:{}", to.port())), "{ask}");
        assert_error(asking(&mut target, &line), "TRYAGAIN");
    }
    first.retain(|key| keys(from).contains(key));
    assert_eq!(first.len(), 2);
    move_keys(from, to, &first.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(keys(from), [] as [&str; 0]);
    for node in [to, from].into_iter().chain(cluster.nodes()) {
        set_slot(node, &["NODE", &id(to)]);
    }
    cluster.wait_ok();

    // MIGRATE sends what is left of each time, so all end as much later as that
    // took to arrive.
    let late = clock(&mut target) - started;
    let moved = keys(to);
    for (key, before) in moved.iter().zip(ends_before) {
        let shift = ends_at(&mut target, key) - before;
        assert!((0..=late).contains(&shift), "{key}: {shift} of {late} ms");
    }
    assert_error(run(&mut source, "RWLOCK.UNLOCK lock a"), "MOVED");
    assert_eq!(
        moved,
        [
            "lock",
            "{lock}:a:rwlock_timeout:1",
            "{lock}:a:rwlock_timeout:2",
            "{lock}:b:rwlock_timeout:1",
            "{lock}:wait_write"
        ]
    );
    assert_eq!(bytes(inspect(&mut target, LOCK, "reserved_by")), b"c");
    assert!(int(run(&mut target, "RWLOCK.WLOCK lock d 60000")) > 0);
    assert_ok(run(&mut target, "RWLOCK.RLOCK lock a 60000"));
    assert_eq!(int(run(&mut target, "RWLOCK.UNLOCK lock a")), 0);
    assert_eq!(int(run(&mut target, "RWLOCK.UNLOCK lock a ALL")), 0);
    assert_eq!(int(run(&mut target, "RWLOCK.UNLOCK lock b")), 1);
    assert_ok(run(&mut target, "RWLOCK.WLOCK lock c 60000"));
    assert_eq!(int(run(&mut target, "RWLOCK.UNLOCK lock c")), 1);
    assert_eq!(keys(to), [] as [&str; 0]);
}

/// While the hash is still at the source.
#[track_caller]
fn assert_nobody_serves(source: &mut Connection, target: &mut Connection, home: u16) {
    for line in LINES {
        let line = format!("RWLOCK.{line}");
        assert_error(run(source, &line), "TRYAGAIN");
        let moved = assert_error(run(target, &line), "MOVED");
        assert!(moved.ends_with(&format!(" 127.0.0.1:{home}")), "{moved}");
        assert_error(asking(target, &line), "TRYAGAIN");
    }
    // From a script and from a transaction as well.
    let script = "return redis.call('RWLOCK.RLOCK', KEYS[1], 'a', 60000)";
    assert_error(call!(source, "EVAL", script, 1, LOCK), "TRYAGAIN");
    assert_ok(run(source, "MULTI"));
    assert_eq!(text(run(source, "RWLOCK.UNLOCK lock a")), "QUEUED");
    let replies = list(run(source, "EXEC"));
    let redis::Value::ServerError(error) = &replies[0] else {
        panic!("{replies:?}");
    };
    assert_eq!(error.code(), "TRYAGAIN");
}
