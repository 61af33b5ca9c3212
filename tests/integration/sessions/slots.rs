//! Session holds in a slot that this node does not fully serve: what has to be
//! given back is, when that can be done, and what is bound is renewed as long as
//! its keys are here.

use std::thread;
use std::time::Duration;

use redis::Connection;

use crate::sessions::{client_id, close, holders, ok};
use support::observe::{ends_at, run};
use support::{
    assert_ok, begin_to_move, call, id, int, list, set_slot, slot, text, wait_until, Client,
    Cluster, Server,
};

const LOCK: &str = "lock";

/// Another lock in its slot.
const OTHER: &str = "{lock}2";

/// The node that serves the lock, and another.
fn nodes(cluster: &Cluster) -> (&Server, &Server) {
    let from = cluster.primary_for(LOCK.as_bytes());
    let to = cluster.nodes().iter().find(|node| node.port() != from.port());
    (from, to.expect("there are several"))
}

fn migrate(from: &Server, to: &Server) {
    begin_to_move(LOCK.as_bytes(), from, to);
}

fn stay(from: &Server, to: &Server) {
    for node in [from, to] {
        assert_ok(set_slot(node, LOCK.as_bytes(), &["STABLE"]));
    }
}

fn exists(con: &mut Connection) -> bool {
    int(run(con, "EXISTS lock")) == 1
}

#[test]
fn a_closed_connections_hold_goes_as_soon_as_the_slot_stays() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let mut watch = from.connection();
    for command in ["WLOCK", "RLOCK"] {
        let mut con = from.connection();
        ok(&mut con, &format!("{command} lock a 600000 SESSION"));
        migrate(from, to);
        close(con, &mut watch);
        // It is tried every 100 ms, and nothing tells of a try in vain.
        thread::sleep(Duration::from_millis(300));
        assert!(exists(&mut watch), "{command}");
        stay(from, to);
        wait_until("it is given back", || !exists(&mut watch));
    }
    // And where the slot leaves, nothing of it stays here.
    let mut con = from.connection();
    ok(&mut con, "WLOCK lock a 600000 SESSION");
    migrate(from, to);
    close(con, &mut watch);
    cluster.finish_move(LOCK.as_bytes(), from, to);
    wait_until("nothing is bound here", || from.info("rwlock")["rwlock_session_holds"] == "0");
    assert_eq!(int(run(&mut to.connection(), "RWLOCK.UNLOCK lock a")), 1);
}

/// The client comes back and goes on with ONCE, as after any lost answer.
#[test]
fn who_takes_a_closed_connections_hold_over_keeps_it() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let mut watch = from.connection();
    for (command, kind) in [("WLOCK", "write"), ("RLOCK", "read")] {
        let mut con = from.connection();
        ok(&mut con, &format!("{command} {LOCK} a 600000 SESSION"));
        ok(&mut con, &format!("{command} {OTHER} a 600000 SESSION"));
        migrate(from, to);
        close(con, &mut watch);
        let mut next = from.connection();
        let number = slot(LOCK.as_bytes()).to_string();
        let mut pipe = redis::pipe();
        pipe.cmd("CLUSTER").arg(&["SETSLOT", &number, "STABLE"]).ignore();
        let words = [LOCK, "a", "600000", "SESSION", "ONCE"];
        pipe.cmd(&format!("RWLOCK.{command}")).arg(&words).ignore();
        pipe.query::<()>(&mut next).expect("both are done");
        // Both were to be given back at the same time.
        wait_until("the other is", || int(call!(watch, "EXISTS", OTHER)) == 0);
        let bound = ("a".to_owned(), kind.to_owned(), 1, client_id(&mut next));
        assert_eq!(holders(&mut watch, LOCK), [bound]);
        close(next, &mut watch);
        wait_until("it is given back", || !exists(&mut watch));
        stay(from, to);
    }
}

#[test]
fn a_closed_connections_hold_is_renewed_no_more() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let mut watch = from.connection();
    for command in ["WLOCK", "RLOCK"] {
        let mut con = from.connection();
        ok(&mut con, &format!("{command} {LOCK} a 900 SESSION"));
        migrate(from, to);
        close(con, &mut watch);
        wait_until("it ends with its lease", || int(run(&mut watch, "DBSIZE")) == 0);
        stay(from, to);
    }
}

#[test]
fn a_lost_grant_is_taken_back_as_soon_as_the_slot_stays() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let mut watch = from.connection();
    for command in ["WLOCK", "RLOCK"] {
        ok(&mut watch, "WLOCK lock h 600000");
        let waiter = Client::waits(from, &format!("{command} lock w 600000 BLOCK 0"));
        let mut pipe = redis::pipe();
        pipe.cmd("RWLOCK.UNLOCK").arg(&[LOCK, "h"]);
        let (number, to_id) = (slot(LOCK.as_bytes()).to_string(), id(to));
        pipe.cmd("CLUSTER").arg(&["SETSLOT", &number, "MIGRATING", &to_id]);
        pipe.cmd("CLIENT").arg(&["KILL", "ID", &waiter.id.to_string()]);
        pipe.query::<Vec<redis::Value>>(&mut watch).expect("all replies");
        // It is tried every 100 ms, and nothing tells of a try in vain.
        thread::sleep(Duration::from_millis(300));
        assert!(exists(&mut watch), "{command}");
        assert_ok(set_slot(from, LOCK.as_bytes(), &["STABLE"]));
        wait_until("it is taken back", || !exists(&mut watch));
    }
}

#[test]
fn a_closed_connections_hold_goes_when_the_cluster_is_up_again() {
    let cluster = Cluster::start(3, 0);
    let (from, _) = nodes(&cluster);
    let mut watch = from.connection();
    let mut con = from.connection();
    ok(&mut con, "WLOCK lock a 600000 SESSION");
    let own = slot(LOCK.as_bytes());
    let ranges = list(run(&mut watch, "CLUSTER SLOTS"));
    let first = ranges.into_iter().map(|range| int(Ok(list(Ok(range))[0].clone())));
    let first = first.filter(|first| *first <= i64::from(own)).max().expect("its range");
    assert_ne!(first, i64::from(own));
    let state = |con: &mut Connection| text(run(con, "CLUSTER INFO")).contains("cluster_state:ok");
    assert_ok(call!(watch, "CLUSTER", "DELSLOTS", first));
    wait_until("the cluster is down", || !state(&mut watch));
    close(con, &mut watch);
    // It is tried every 100 ms, and nothing tells of a try in vain.
    thread::sleep(Duration::from_millis(300));
    assert_ok(call!(watch, "CLUSTER", "ADDSLOTS", first));
    wait_until("the cluster is up", || state(&mut watch));
    wait_until("it is given back", || !exists(&mut watch));
}

#[test]
fn a_session_hold_outlives_a_migration_as_long_as_its_keys_are_here() {
    let cluster = Cluster::start(3, 0);
    let (from, to) = nodes(&cluster);
    let mut watch = from.connection();
    for (command, kind) in [("WLOCK", "write"), ("RLOCK", "read")] {
        let mut con = from.connection();
        ok(&mut con, &format!("{command} lock a 900 SESSION"));
        let bound = [("a".to_owned(), kind.to_owned(), 1, client_id(&mut con))];
        let first = ends_at(&mut watch, LOCK);
        migrate(from, to);
        wait_until("it is renewed", || ends_at(&mut watch, LOCK) > first + 1_500);
        stay(from, to);
        assert_eq!(holders(&mut watch, LOCK), bound);
        let later = ends_at(&mut watch, LOCK);
        wait_until("and goes on", || ends_at(&mut watch, LOCK) > later + 900);
        close(con, &mut watch);
        wait_until("it is given back", || !exists(&mut watch));
    }
}
