//! Locks on a node that has never heard of them: their slot moved in, or the node was
//! restarted. And what clients are told that waited where the slot was.

use std::thread;
use std::time::Duration;

use redis::Connection;

use support::observe::{run, Subscriber};
use support::{
    assert_error, assert_ok, begin_to_move, error_text, id, int, list, migrate, slot, text,
    wait_until, wait_until_within, Client, Cluster, Migration, Server,
};

/// The node that serves the slot of `key`, and another one.
fn two_nodes<'c>(cluster: &'c Cluster, key: &[u8]) -> (&'c Server, &'c Server) {
    let from = cluster.primary_for(key);
    let to = cluster.nodes().iter().find(|node| node.port() != from.port());
    (from, to.expect("another one"))
}

fn ttl(con: &mut Connection, key: &str) -> i64 {
    int(run(con, &format!("PTTL {key}")))
}

#[test]
fn the_leases_of_a_lock_that_moved_in_end_on_time() {
    let global = "cluster-publish global";
    let cluster = Cluster::start_with(2, 0, |node| node.module_arguments(global));
    for kind in Migration::kinds(cluster.node(0)) {
        let tag = format!("{{moved-{kind:?}}}");
        let key = tag.as_bytes();
        let (from, to) = two_nodes(&cluster, key);
        let mut con = from.connection();
        let lock = |name: &str| format!("{tag}{name}");
        let (readers, written, shortened) = (lock("readers"), lock("written"), lock("shortened"));
        for (command, lock, owner, lease) in [
            ("RLOCK", &readers, "a", 60_000),
            ("RLOCK", &readers, "b", 4_000),
            ("WLOCK", &written, "a", 4_000),
            ("RLOCK", &shortened, "a", 60_000),
        ] {
            assert_ok(run(&mut con, &format!("RWLOCK.{command} {lock} {owner} {lease}")));
        }
        let channel = format!("redisson_rwlock:{written}");
        let mut heard = Subscriber::channel(to, channel.as_bytes());
        if kind == Migration::Atomically {
            cluster.move_atomically(key, from, to);
        } else {
            begin_to_move(key, from, to);
            if kind == Migration::Slowly {
                // They are at the new node for a while before the slot is.
                thread::sleep(Duration::from_millis(100));
            }
            cluster.finish_move(key, from, to);
        }
        // Nobody sends a command of the module for the locks here.
        let mut con = to.connection();
        assert_eq!(int(run(&mut con, &format!("PEXPIRE {shortened} 5000"))), 1);
        wait_until("the reader's end is the lock's", || ttl(&mut con, &shortened) > 50_000);
        assert_eq!(heard.message().1, "1", "the write lock lapses");
        wait_until_within("the lapsed reader goes", Duration::from_secs(1), || {
            int(run(&mut con, &format!("HLEN {readers}"))) == 2
        });
        assert!(int(run(&mut con, &format!("RWLOCK.WLOCK {shortened} w 60000"))) > 50_000);
        for lock in [readers, shortened] {
            assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} a"))), 1);
        }
    }
}

#[test]
fn keys_that_look_like_locks_and_are_none_are_left_alone_when_they_move_in() {
    let cluster = Cluster::start(2, 0);
    let (from, to) = two_nodes(&cluster, b"x");
    let mut con = from.connection();
    for line in ["HSET {x}1 mode read y 1", "HSET {x}2 mode write", "HSET {x}3 a b", "SET {x}4 1"] {
        run(&mut con, line).expect("a key");
    }
    begin_to_move(b"x", from, to);
    cluster.finish_move(b"x", from, to);
    // They are tried every 100 ms, and nothing tells of a try in vain.
    thread::sleep(Duration::from_millis(500));
    let mut con = to.connection();
    for (key, fields) in [("{x}1", 2), ("{x}2", 1), ("{x}3", 1)] {
        assert_eq!(int(run(&mut con, &format!("HLEN {key}"))), fields, "{key}");
    }
}

#[test]
fn leases_end_on_time_after_the_restart_of_a_node() {
    let mut cluster = Cluster::start_with(1, 0, |node| node.aof());
    let mut con = cluster.node(0).connection();
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 60000"));
    // It lapses after the sweep.
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock b 9000"));
    drop(con);
    cluster.node_mut(0).restart();
    let node = cluster.node(0);
    let mut con = node.connection();
    wait_until("the sweep is done", || node.info("rwlock")["rwlock_sweep"] == "done");
    assert_eq!(int(run(&mut con, "HLEN lock")), 3, "it was slow: b has lapsed");
    wait_until_within("b's hold goes", Duration::from_secs(12), || {
        int(run(&mut con, "HLEN lock")) == 2
    });
    // Not by the command of somebody.
    assert_eq!(node.info("rwlock")["rwlock_lapsed"], "1");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
}

#[test]
fn waiters_are_told_that_the_cluster_is_down() {
    let mut cluster = Cluster::start(3, 0);
    let home = cluster.primary_for(b"lock").port();
    let at = |cluster: &Cluster| cluster.nodes().iter().position(|node| node.port() == home);
    let at = at(&cluster).expect("it is one of them");
    let other = (at + 1) % 3;
    let mut con = cluster.node(at).connection();
    // The server itself tells those who are blocked, a few every 100 ms. The module looks at
    // these locks every 50 ms, for the writer reads as well.
    let mut waiters: Vec<Client> = (0..10)
        .map(|number| {
            for command in ["WLOCK", "RLOCK"] {
                assert_ok(run(&mut con, &format!("RWLOCK.{command} {{lock}}{number} a 60000")));
            }
            let line = format!("WLOCK {{lock}}{number} b 60000 BLOCK 0");
            Client::waits(cluster.node(at), &line)
        })
        .collect();
    cluster.node_mut(other).kill9();
    let told: Vec<String> =
        waiters.iter_mut().map(|w| error_text(&w.reply().expect_err("no grant"))).collect();
    let own = assert_error(run(&mut con, "RWLOCK.WLOCK lock b 60000"), "CLUSTERDOWN");
    assert_eq!(told, vec![own; 10]);
}

#[test]
fn waiters_are_sent_where_the_server_sends_everybody() {
    let cluster =
        Cluster::start_with(2, 0, |node| node.config("cluster-announce-hostname", "node.example"));
    for (round, kind) in ["ip", "hostname", "unknown-endpoint"].into_iter().enumerate() {
        let lock = format!("lock-{round}");
        let (from, to) = two_nodes(&cluster, lock.as_bytes());
        for node in cluster.nodes() {
            let set = format!("CONFIG SET cluster-preferred-endpoint-type {kind}");
            assert_ok(run(&mut node.connection(), &set));
        }
        let mut con = from.connection();
        assert_ok(run(&mut con, &format!("RWLOCK.WLOCK {lock} a 60000")));
        let mut waiter = Client::waits(from, &format!("WLOCK {lock} b 60000 BLOCK 0"));
        begin_and_finish(&lock, from, to);
        let told = waiter.reply().expect_err("it is not granted here");
        let told = error_text(&told);
        let own = assert_error(run(&mut con, &format!("RWLOCK.WLOCK {lock} b 60000")), "MOVED");
        assert_eq!(told, own, "{kind}");
        cluster.wait_ok();
        assert_eq!(int(run(&mut to.connection(), &format!("RWLOCK.UNLOCK {lock} a"))), 1);
    }
}

/// Moves the keys and the slot before the timer fires again: waiters are never told to
/// come again.
fn begin_and_finish(lock: &str, from: &Server, to: &Server) {
    let number = slot(lock.as_bytes()).to_string();
    let import = format!("CLUSTER SETSLOT {number} IMPORTING {}", id(from));
    assert_ok(run(&mut to.connection(), &import));
    let mut con = from.connection();
    let keys = list(run(&mut con, &format!("CLUSTER GETKEYSINSLOT {number} 10")));
    let keys: Vec<String> = keys.into_iter().map(text).collect();
    let mut pipe = redis::pipe();
    pipe.atomic();
    let mut command = redis::cmd("MIGRATE");
    command.arg(&migrate(to, &keys)[1..]);
    pipe.add_command(command);
    pipe.cmd("CLUSTER").arg(&["SETSLOT", &number, "NODE", &id(to)]);
    pipe.query::<()>(&mut con).expect("both");
    assert_ok(run(&mut to.connection(), &format!("CLUSTER SETSLOT {number} NODE {}", id(to))));
}
