//! Slots that move with all their keys in one step (CLUSTER MIGRATESLOTS, from Valkey 9 on).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use redis::{Connection, Value};

use support::observe::{info_number, inspect, run, Subscriber};
use support::{
    assert_error, assert_ok, error_text, int, list, send, text, wait_until, Client, Cluster,
    Migration, Server,
};

/// A cluster of two, if its servers can do that.
fn cluster() -> Option<Cluster> {
    let cluster = Cluster::start(2, 0);
    Migration::kinds(cluster.node(0)).contains(&Migration::Atomically).then_some(cluster)
}

/// The node that serves the slot of `key`, and the other one.
fn two_nodes<'c>(cluster: &'c Cluster, key: &str) -> (&'c Server, &'c Server) {
    let from = cluster.primary_for(key.as_bytes());
    let to = cluster.nodes().iter().find(|node| node.port() != from.port());
    (from, to.expect("there are two"))
}

fn sweep(node: &Server) -> String {
    node.info("rwlock")["rwlock_sweep"].clone()
}

#[test]
fn a_slot_that_moves_back_brings_its_locks_and_no_sessions() {
    let Some(cluster) = cluster() else {
        return;
    };
    let (home, away) = two_nodes(&cluster, "lock");
    let mut session = Client::new(home);
    session.send("WLOCK lock a 60000 SESSION FENCE");
    let reply = list(session.reply());
    let first = int(Ok(reply[1].clone()));
    let mut waiter = Client::waits(home, "WLOCK lock b 60000 BLOCK 0");
    cluster.move_atomically(b"lock", home, away);
    assert_error(waiter.reply(), "MOVED");
    cluster.move_atomically(b"lock", away, home);
    // The connection closes where the hold was bound to it, before the slot left.
    drop(session);
    let mut con = home.connection();
    wait_until("the lock was found", || sweep(home) == "done");
    assert_eq!(info_number(home, "rwlock", "rwlock_session_holds"), 0);
    assert_eq!(text(inspect(&mut con, "lock", "mode")), "write");
    assert!(int(run(&mut con, "RWLOCK.WLOCK lock b 60000")) > 0, "a holds it until its lease ends");
    // A waiter waits here as anywhere, and tokens go on.
    let mut waiter = Client::waits(home, "WLOCK lock b 60000 BLOCK 0 FENCE");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    let reply = list(waiter.reply());
    assert!(int(Ok(reply[1].clone())) > first, "{reply:?} after {first}");
}

#[test]
fn a_migration_that_fails_changes_nothing() {
    let Some(cluster) = cluster() else {
        return;
    };
    let (home, away) = two_nodes(&cluster, "lock");
    let mut session = Client::new(home);
    session.send("WLOCK lock a 60000 SESSION");
    session.granted();
    let mut waiter = Client::waits(home, "WLOCK lock b 60000 BLOCK 0");
    // It goes no further than to this point.
    let mut con = away.connection();
    assert_ok(run(&mut con, "DEBUG SLOTMIGRATION PREVENT-FAILOVER 1"));
    let number = support::slot(b"lock").to_string();
    let to = support::id(away);
    let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &number, &number, "NODE", &to];
    assert_ok(send(&mut home.connection(), words));
    wait_until("the keys are there", || {
        int(run(&mut con, &format!("CLUSTER COUNTKEYSINSLOT {number}"))) > 0
    });
    assert_error(run(&mut con, "RWLOCK.WLOCK lock c 60000"), "MOVED");
    assert_ok(run(&mut home.connection(), "CLUSTER CANCELSLOTMIGRATIONS"));
    wait_until("they are gone again", || {
        int(run(&mut con, &format!("CLUSTER COUNTKEYSINSLOT {number}"))) == 0
    });
    assert_eq!(info_number(home, "rwlock", "rwlock_session_holds"), 1);
    drop(session);
    waiter.granted();
}

#[test]
fn nothing_is_granted_twice_while_a_slot_goes_back_and_forth() {
    let Some(cluster) = cluster() else {
        return;
    };
    const OWNERS: usize = 8;
    let (home, away) = two_nodes(&cluster, "lock");
    let is_over = AtomicBool::new(false);
    let (holder, token, turns) = (AtomicI64::new(-1), AtomicI64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for owner in 0..OWNERS {
            let (is_over, holder, token, turns) = (&is_over, &holder, &token, &turns);
            scope.spawn(move || {
                let mut nodes = [home, away].map(Server::connection);
                let take = format!("RWLOCK.WLOCK lock owner-{owner} 60000 BLOCK 0 FENCE");
                let give = format!("RWLOCK.UNLOCK lock owner-{owner}");
                while !is_over.load(Ordering::Relaxed) {
                    let granted = list(follow(&mut nodes, &take));
                    let granted = int(Ok(granted[1].clone()));
                    assert_eq!(holder.swap(owner as i64, Ordering::SeqCst), -1, "two holders");
                    assert!(token.swap(granted, Ordering::SeqCst) < granted, "tokens increase");
                    turns.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(holder.swap(-1, Ordering::SeqCst), owner as i64, "two holders");
                    assert_eq!(int(follow(&mut nodes, &give)), 1, "a hold was lost");
                }
            });
        }
        // Also if an assertion fails here, the threads end.
        let mover = scope.spawn(|| {
            for (from, to) in [(home, away), (away, home)].into_iter().cycle().take(20) {
                let before = turns.load(Ordering::Relaxed);
                cluster.move_atomically(b"lock", from, to);
                wait_until("it goes on there", || {
                    turns.load(Ordering::Relaxed) > before + OWNERS as u64
                });
            }
        });
        let moved = mover.join();
        is_over.store(true, Ordering::Relaxed);
        moved.expect("20 migrations");
    });
    for node in cluster.nodes() {
        assert_eq!(info_number(node, "rwlock", "rwlock_waiters"), 0);
    }
}

#[test]
fn locks_that_nobody_names_lapse_where_their_slot_is() {
    let Some(cluster) = cluster() else {
        return;
    };
    let (home, away) = two_nodes(&cluster, "lock");
    for node in cluster.nodes() {
        assert_ok(run(&mut node.connection(), "CONFIG SET notify-keyspace-events Kd"));
    }
    let mut con = home.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 6000"));
    let lease_ends = support::observe::ends_at(&mut con, "lock");
    let mut heard = Subscriber::pattern(away, b"__keyspace@0__:lock");
    cluster.move_atomically(b"lock", home, away);
    // And once more, while the sweep may be under way.
    cluster.move_atomically(b"lock", away, home);
    cluster.move_atomically(b"lock", home, away);
    assert_eq!(support::observe::ends_at(&mut away.connection(), "lock"), lease_ends);
    assert_eq!(heard.message().1, "rwlock.expire");
    assert!(support::observe::clock(&mut away.connection()) >= lease_ends, "too early");
    assert_eq!(info_number(away, "rwlock", "rwlock_lapsed"), 1);
    assert_eq!(info_number(home, "rwlock", "rwlock_lapsed"), 0);
}

/// Sends a command to the node that serves it, as cluster clients do.
fn follow(nodes: &mut [Connection; 2], line: &str) -> redis::RedisResult<Value> {
    for at in (0..2).cycle() {
        match run(&mut nodes[at], line) {
            Err(error) => {
                let text = error_text(&error);
                assert!(text.starts_with("MOVED ") || text.starts_with("TRYAGAIN "), "{text}");
            }
            reply => return reply,
        }
    }
    unreachable!("the nodes are tried for ever");
}
