//! Waiters whose server stops being the primary, or whose slot moves away.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use redis::{Connection, RedisError, Value};

use support::observe::{info_number, inspect, run};
use support::{
    assert_error, assert_ok, begin_to_move, error_text, int, list, map, send, set_slot, text,
    wait_synced, wait_until, Client, Cluster, Migration, Server,
};

#[test]
fn waiters_on_a_primary_that_becomes_a_replica_are_unblocked() {
    let first = Server::builder().start();
    let second = Server::builder().replica_of(&first).start();
    wait_synced(&first, &second);
    let mut con = first.connection();
    for round in 0..2 {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
        assert_ok(run(&mut con, "RWLOCK.RLOCK reads c 60000"));
        assert_ok(run(&mut con, "RWLOCK.RLOCK reads d 60000"));
        let mut session = first.connection();
        assert_ok(run(&mut session, "RWLOCK.WLOCK session a 60000 SESSION"));
        let mut waiters = [
            "WLOCK lock b 60000 BLOCK 0",
            "RLOCK lock e 60000 BLOCK 0 SESSION",
            "UPGRADE reads c 60000 BLOCK 60000",
            "WLOCK session b 60000 BLOCK 0",
        ]
        .map(|line| Client::waits(&first, line));
        wait_synced(&first, &second);
        if round == 0 {
            let port = second.port().to_string();
            assert_ok(send(&mut second.connection(), ["REPLICAOF", "NO", "ONE"]));
            assert_ok(send(&mut con, ["REPLICAOF", "127.0.0.1", &port]));
        } else {
            assert_ok(run(&mut con, "FAILOVER"));
        }
        for waiter in &mut waiters {
            assert_error(waiter.reply(), "UNBLOCKED");
        }
        wait_until("they have changed roles", || {
            second.info("replication")["role"] == "master"
                && first.info("replication")["role"] == "slave"
        });
        wait_synced(&second, &first);
        // The session is over, its hold goes on on the new primary.
        drop(session);
        let mut new = second.connection();
        let mut old = first.connection();
        assert_eq!(list(run(&mut old, "RWLOCK.QUEUES")), []);
        for lock in ["lock", "session", "reads"] {
            assert_ne!(text(inspect(&mut new, lock, "mode")), "free");
            assert_eq!(int(inspect(&mut old, lock, "waiters_total")), 0);
        }
        assert_error(run(&mut old, "RWLOCK.WLOCK lock b 60000 BLOCK 0"), "READONLY");
        for lock in ["lock", "session", "reads"] {
            assert_eq!(int(run(&mut new, &format!("RWLOCK.FORCEUNLOCK {lock}"))), 1);
        }
        // Back again, for the next round.
        assert_ok(run(&mut old, "REPLICAOF NO ONE"));
        let port = first.port().to_string();
        assert_ok(send(&mut new, ["REPLICAOF", "127.0.0.1", &port]));
        wait_synced(&first, &second);
        con = first.connection();
    }
}

const LOCKS: usize = 20;

/// Locks of one slot, each held by `holder` with five who wait.
struct Crowd {
    tag: String,
    waiters: Vec<(usize, String, Client)>,
}

impl Crowd {
    fn gather(server: &Server, tag: &str) -> Self {
        let mut con = server.connection();
        let mut waiters = Vec::new();
        for number in 0..LOCKS {
            let lock = format!("{{{tag}}}{number}");
            assert_ok(run(&mut con, &format!("RWLOCK.WLOCK {lock} holder 600000")));
            let commands = ["WLOCK", "RLOCK", "RLOCK", "WLOCK", "RLOCK"];
            for (waiter, command) in commands.iter().enumerate() {
                let owner = format!("waiter-{waiter}");
                let session = if waiter % 2 == 0 { "" } else { " SESSION" };
                let line = format!("{command} {lock} {owner} 600000 BLOCK 60000{session}");
                waiters.push((number, owner, Client::waits(server, &line)));
            }
        }
        Self { tag: tag.to_owned(), waiters }
    }

    fn lock(&self, number: usize) -> String {
        format!("{{{}}}{number}", self.tag)
    }

    /// Every waiter ends with a grant or an error that client libraries know;
    /// who was granted which lock.
    fn ends(&mut self) -> BTreeMap<usize, Vec<String>> {
        let mut granted: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (number, owner, waiter) in &mut self.waiters {
            match waiter.reply() {
                Ok(Value::Okay) => granted.entry(*number).or_default().push(owner.clone()),
                Ok(other) => panic!("{owner} of {number}: {other:?}"),
                Err(error) => assert!(is_understood(&error), "{owner} of {number}: {error}"),
            }
        }
        granted
    }
}

fn is_understood(error: &RedisError) -> bool {
    if error.is_connection_dropped() || error.is_io_error() && !error.is_timeout() {
        return true;
    }
    let text = error_text(error);
    ["MOVED ", "TRYAGAIN ", "UNBLOCKED ", "CLUSTERDOWN "].iter().any(|code| text.starts_with(code))
}

/// The owners that hold a lock.
fn holders(con: &mut Connection, lock: &str) -> Vec<String> {
    let mut owners: Vec<String> = list(inspect(con, lock, "holders"))
        .iter()
        .map(|holder| text(&map(holder)["owner"]))
        .collect();
    owners.sort();
    owners
}

/// UNLOCK of one lock after the other, until the server will not have it; how
/// many locks were given back.
fn release(con: &mut Connection, locks: impl IntoIterator<Item = String>) -> usize {
    locks
        .into_iter()
        .take_while(|lock| {
            thread::sleep(Duration::from_millis(3));
            run(con, &format!("RWLOCK.UNLOCK {lock} holder")) == Ok(Value::Int(1))
        })
        .count()
}

/// The first in the queue of each lock that was given back has it, on the node
/// that serves the slot now, and nobody else has any.
fn assert_holds(crowd: &mut Crowd, node: &Server, released: usize) {
    let granted = crowd.ends();
    let mut con = node.connection();
    for number in 0..LOCKS {
        let lock = crowd.lock(number);
        let granted = granted.get(&number).map(Vec::as_slice).unwrap_or_default();
        if number < released {
            assert_eq!(granted, ["waiter-0"], "{lock}");
            assert_eq!(holders(&mut con, &lock), ["waiter-0"], "{lock}");
        } else {
            assert_eq!(granted, [] as [&str; 0], "{lock} was not given back");
            assert_eq!(holders(&mut con, &lock), ["holder"], "{lock}");
        }
    }
    // And there it goes on: a lock is handed over.
    let last = crowd.lock(LOCKS - 1);
    let mut waiter = Client::waits(node, &format!("WLOCK {last} again 60000 BLOCK 0"));
    assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {last} holder"))), 1);
    waiter.granted();
}

/// The primary that serves the crowd's slot, and its replica.
fn pair<'c>(cluster: &'c Cluster, tag: &str) -> (usize, &'c Server, &'c Server) {
    let primary = cluster.primary_for(tag.as_bytes());
    let index = cluster.nodes().iter().position(|node| node.port() == primary.port());
    let index = index.expect("one of them");
    (index, primary, cluster.node(index + 3))
}

#[test]
fn a_failover_under_100_waiters_leaves_nobody_hanging() {
    let cluster = Cluster::start(3, 1);
    let (_, primary, replica) = pair(&cluster, "crowd");
    let mut crowd = Crowd::gather(primary, "crowd");
    wait_synced(primary, replica);
    let released = thread::scope(|scope| {
        let locks: Vec<String> = (0..LOCKS - 1).map(|number| crowd.lock(number)).collect();
        let mut con = primary.connection();
        // It hands over while it hands itself over.
        let releaser = scope.spawn(move || release(&mut con, locks));
        thread::sleep(Duration::from_millis(10));
        assert_ok(run(&mut replica.connection(), "CLUSTER FAILOVER"));
        releaser.join().expect("the releaser")
    });
    wait_until("the replica takes over", || {
        replica.info("replication")["role"] == "master"
            && primary.info("replication")["role"] == "slave"
    });
    cluster.wait_ok();
    assert_holds(&mut crowd, replica, released);
    assert_eq!(list(run(&mut primary.connection(), "RWLOCK.QUEUES")), []);
}

#[test]
fn a_crash_of_a_cluster_node_under_100_waiters_leaves_nobody_hanging() {
    let mut cluster = Cluster::start_with(3, 1, |node| node.config("cluster-node-timeout", 2_000));
    let (index, primary, replica) = pair(&cluster, "crowd");
    let mut crowd = Crowd::gather(primary, "crowd");
    let released = release(&mut primary.connection(), (0..5).map(|number| crowd.lock(number)));
    wait_synced(primary, replica);
    cluster.node_mut(index).kill9();
    let replica = cluster.node(index + 3);
    wait_until("the replica takes over", || replica.info("replication")["role"] == "master");
    cluster.wait_ok();
    assert_holds(&mut crowd, replica, released);
}

/// 100 session holds in a slot, half of them for reading, each with the end of its lease.
struct Sessions {
    tag: String,
    clients: Vec<Client>,
}

impl Sessions {
    /// Longer than any test: a session is renewed after a third of it.
    const LEASE: i64 = 600_000;

    fn open(server: &Server, tag: &str) -> Self {
        let clients = (0..100).map(|number| {
            let command = ["WLOCK", "RLOCK"][number % 2];
            let mut client = Client::new(server);
            client.send(&format!("{command} {{{tag}}}session-{number} s {} SESSION", Self::LEASE));
            client.granted();
            client
        });
        Self { tag: tag.to_owned(), clients: clients.collect() }
    }

    fn lock(&self, number: usize) -> String {
        format!("{{{}}}session-{number}", self.tag)
    }

    /// The holds are on `to`, until their leases end. For `from` they are over.
    fn assert_moved(mut self, from: &Server, to: &Server) {
        wait_until("nothing is bound where they were", || {
            info_number(from, "rwlock", "rwlock_session_holds") == 0
        });
        assert_eq!(info_number(to, "rwlock", "rwlock_session_holds"), 0);
        let clients = std::mem::take(&mut self.clients).len();
        let mut con = to.connection();
        for number in 0..clients {
            let lock = self.lock(number);
            assert_eq!(holders(&mut con, &lock), ["s"], "{lock}");
            let left = int(run(&mut con, &format!("RWLOCK.WLOCK {lock} other 60000")));
            // MIGRATE sends what is left of each time, so it ends as much later as that took.
            assert!((1..Self::LEASE + 60_000).contains(&left), "{lock}: {left}");
            assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} s"))), 1, "{lock}");
        }
    }
}

#[test]
fn a_slot_migration_under_100_waiters_and_100_sessions_leaves_nobody_hanging() {
    let cluster = Cluster::start(3, 1);
    for kind in Migration::kinds(cluster.node(0)) {
        let tag = format!("{kind:?}");
        let key = tag.as_bytes();
        let (_, from, _) = pair(&cluster, &tag);
        let to = cluster.nodes()[..3].iter().find(|node| node.port() != from.port());
        let to = to.expect("there are three");
        let sessions = Sessions::open(from, &tag);
        let mut crowd = Crowd::gather(from, &tag);
        let released = release(&mut from.connection(), (0..5).map(|number| crowd.lock(number)));
        assert_eq!(released, 5);
        // The sessions of the waiters that have their locks.
        assert!(info_number(from, "rwlock", "rwlock_session_holds") >= 100);
        if kind == Migration::Atomically {
            cluster.move_atomically(key, from, to);
        } else {
            begin_to_move(key, from, to);
            let mut con = from.connection();
            let last = crowd.lock(LOCKS - 1);
            assert_error(run(&mut con, &format!("RWLOCK.UNLOCK {last} holder")), "TRYAGAIN");
            if kind == Migration::Slowly {
                // All get TRYAGAIN, while the slot is under way.
                wait_until("nobody waits", || list(run(&mut con, "RWLOCK.QUEUES")).is_empty());
                // It stays under way for a while.
                thread::sleep(Duration::from_millis(300));
            }
            cluster.finish_move(key, from, to);
        }
        assert_holds(&mut crowd, to, released);
        sessions.assert_moved(from, to);
        assert_eq!(list(run(&mut from.connection(), "RWLOCK.QUEUES")), []);
    }
}

#[test]
fn a_slot_that_stays_after_all_keeps_its_sessions() {
    let cluster = Cluster::start(3, 0);
    let from = cluster.primary_for(b"lock");
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("another");
    let mut session = from.connection();
    assert_ok(run(&mut session, "RWLOCK.WLOCK lock a 3000 SESSION"));
    assert_ok(run(&mut session, "RWLOCK.RLOCK {lock}read a 3000 SESSION"));
    begin_to_move(b"lock", from, to);
    thread::sleep(Duration::from_millis(1_500));
    for node in [from, to] {
        assert_ok(set_slot(node, b"lock", &["STABLE"]));
    }
    // Far longer than the lease.
    thread::sleep(Duration::from_millis(5_000));
    let mut con = from.connection();
    assert_eq!(holders(&mut con, "lock"), ["a"]);
    assert_eq!(holders(&mut con, "{lock}read"), ["a"]);
    let mut waiter = Client::waits(from, "WLOCK lock b 60000 BLOCK 0");
    drop(session);
    waiter.granted();
    wait_until("the other is free as well", || holders(&mut con, "{lock}read").is_empty());
}
