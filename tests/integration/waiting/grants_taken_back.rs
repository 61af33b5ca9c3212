//! A grant whose answer is lost is taken back: this hold, and never a later one
//! of the same owner.

use crate::sessions::{holders, hours, ok, HOUR};
use support::observe::{ends_at, run};
use support::{call, int, local_clock, text, wait_until, Client, Server};

/// The lease of the hold that is taken after the one whose answer is lost.
const LATER: &str = "10800000";

/// A client waits; in one packet it is granted the lock, `steps` follow, and it
/// is killed. So its answer is under way while they run, and lost.
fn granted_and_lost(server: &Server, waits: &str, steps: &[&str]) {
    let mut con = server.connection();
    ok(&mut con, "WLOCK k h 60000");
    let waiter = Client::waits(server, waits);
    let id = waiter.id.to_string();
    let mut pipe = redis::pipe();
    for step in ["RWLOCK.UNLOCK k h"].into_iter().chain(steps.iter().copied()) {
        let mut words = step.split(' ');
        pipe.cmd(words.next().unwrap_or_default()).arg(words.collect::<Vec<_>>());
    }
    pipe.cmd("CLIENT").arg("KILL").arg("ID").arg(&id);
    pipe.query::<Vec<redis::Value>>(&mut con).expect("all replies");
    wait_until("the client is gone", || text(call!(con, "CLIENT", "LIST", "ID", &id)).is_empty());
    // What is to be taken back is, when the next command comes.
    run(&mut con, "RWLOCK.RENEW other nobody 1000").expect_err("not held");
}

#[test]
fn a_later_write_hold_stays() {
    for steps in [
        &["RWLOCK.FORCEUNLOCK k"][..],
        &["RWLOCK.UNLOCK k w"],
        &["RWLOCK.UNLOCK k w ALL"],
        &["DEL k"],
        &["RENAME k elsewhere", "DEL elsewhere"],
        &["FLUSHALL"],
        &["PEXPIRE k 1", "DEBUG SLEEP 0.05"],
        &["RWLOCK.DOWNGRADE k w 60000", "RWLOCK.UNLOCK k w"],
        &["RWLOCK.DOWNGRADE k w 60000", "RWLOCK.UPGRADE k w 60000", "RWLOCK.UNLOCK k w ALL"],
        &["RWLOCK.FORCEUNLOCK k", "RWLOCK.WLOCK k x 60000", "RWLOCK.UNLOCK k x"],
    ] {
        let server = Server::builder().start();
        let mut con = server.connection();
        let later = format!("RWLOCK.WLOCK k w {LATER}");
        let steps = [steps, &[&later]].concat();
        granted_and_lost(&server, &format!("WLOCK k w {HOUR} BLOCK 0"), &steps);
        let held = [("w".to_owned(), "write".to_owned(), 1, 0)];
        assert_eq!(holders(&mut con, "k"), held, "{steps:?}");
        let left = ends_at(&mut con, "k") - local_clock();
        assert_eq!((left + 1_800_000) / 3_600_000, 3, "{steps:?}");
    }
}

#[test]
fn a_later_read_hold_stays() {
    let lapses = ["PEXPIRE {k}:w:rwlock_timeout:1 1", "DEBUG SLEEP 0.05"];
    for steps in [
        &["RWLOCK.FORCEUNLOCK k"][..],
        &["RWLOCK.UNLOCK k w"],
        &["RWLOCK.UNLOCK k w ALL"],
        &["DEL k"],
        &["FLUSHALL"],
        &lapses,
        // The lock is read by others all the while.
        &["RWLOCK.RLOCK k other 60000", "RWLOCK.UNLOCK k w"],
        &[&["RWLOCK.RLOCK k other 60000"][..], &lapses].concat(),
        &["RWLOCK.UPGRADE k w 60000", "RWLOCK.UNLOCK k w", "RWLOCK.UNLOCK k w"],
        &["RWLOCK.UPGRADE k w 60000", "RWLOCK.UNLOCK k w READ"],
    ] {
        let server = Server::builder().start();
        let mut con = server.connection();
        let later = format!("RWLOCK.RLOCK k w {LATER}");
        let steps = [steps, &[&later]].concat();
        granted_and_lost(&server, &format!("RLOCK k w {HOUR} BLOCK 0"), &steps);
        assert_eq!(hours(&mut con, "k", "w"), [3], "{steps:?}");
    }
}

#[test]
fn the_hold_itself_is_taken_back_wherever_it_has_gone() {
    for (waits, steps) in [
        ("WLOCK k w 60000 BLOCK 0", &[][..]),
        ("RLOCK k w 60000 BLOCK 0", &[]),
        ("WLOCK k w 60000 BLOCK 0", &["SWAPDB 0 1"]),
        ("RLOCK k w 60000 BLOCK 0", &["SWAPDB 0 1"]),
        ("WLOCK k w 60000 BLOCK 0", &["SWAPDB 0 1", "SWAPDB 0 1"]),
        ("WLOCK k w 60000 BLOCK 0", &["RENAME k elsewhere"]),
        ("RLOCK k w 60000 BLOCK 0", &["RENAME k elsewhere", "RENAME elsewhere k"]),
        ("WLOCK k w 60000 BLOCK 0", &["MOVE k 1"]),
        ("WLOCK k w 60000 BLOCK 0", &["RWLOCK.WLOCK k w 60000", "RWLOCK.UNLOCK k w"]),
        ("RLOCK k w 60000 BLOCK 0", &["RWLOCK.RLOCK k w 60000", "RWLOCK.UNLOCK k w"]),
        ("RLOCK k w 60000 BLOCK 0", &["RWLOCK.UPGRADE k w 60000", "RWLOCK.UNLOCK k w WRITE"]),
    ] {
        let server = Server::builder().start();
        granted_and_lost(&server, waits, steps);
        let mut con = server.connection();
        wait_until(&format!("{waits}, {steps:?}: all is gone"), || {
            let keyspace = server.info("keyspace");
            let here = int(call!(con, "DBSIZE"));
            here == 0 && !keyspace.contains_key("db1")
        });
    }
}

/// Others may lengthen a session hold with ONCE: it is its connection's all the same.
/// Redis 7.0 loses the answer, and so the connection is closed.
#[test]
fn a_session_hold_goes_with_its_connection_whoever_relies_on_it() {
    for (command, lost) in [("WLOCK", true), ("RLOCK", true), ("WLOCK", false), ("RLOCK", false)] {
        let server = Server::builder().start();
        let mut con = server.connection();
        ok(&mut con, "WLOCK k h 60000");
        let waiter = Client::waits(&server, &format!("{command} k w {HOUR} BLOCK 0 SESSION"));
        let mut pipe = redis::pipe();
        pipe.cmd("RWLOCK.UNLOCK").arg(&["k", "h"]);
        pipe.cmd(&format!("RWLOCK.{command}")).arg(&["k", "w", "60000", "ONCE"]);
        if lost {
            pipe.cmd("CLIENT").arg(&["UNBLOCK", &waiter.id.to_string()]);
        }
        pipe.query::<Vec<redis::Value>>(&mut con).expect("all replies");
        drop(waiter);
        wait_until("it is given back", || int(run(&mut con, "DBSIZE")) == 0);
    }
}

/// DOWNGRADE tells its client that the owner reads now.
#[test]
fn a_read_hold_that_downgrade_left_stays() {
    for (waits, steps) in [
        ("WLOCK k w 60000 BLOCK 0", vec![]),
        ("RLOCK k w 60000 BLOCK 0", vec!["RWLOCK.UPGRADE k w 60000"]),
    ] {
        let server = Server::builder().start();
        let later = format!("RWLOCK.DOWNGRADE k w {LATER}");
        granted_and_lost(&server, waits, &[steps, vec![&*later]].concat());
        assert_eq!(hours(&mut server.connection(), "k", "w"), [3], "{waits}");
    }
}

/// Who is told that it waits no longer has nothing, so what it was granted is a plain
/// hold of whoever relies on it. Redis 7.0 closes the connection instead.
#[test]
fn a_hold_that_somebody_relies_on_stays_when_its_waiter_is_told_of_another_end() {
    for (command, mode) in [("WLOCK", "write"), ("RLOCK", "read")] {
        for session in [" SESSION", ""] {
            let server = Server::builder().start();
            let closes = !server.version().at_least((7, 2), (8, 0));
            if closes && !session.is_empty() {
                continue;
            }
            let mut con = server.connection();
            ok(&mut con, "WLOCK k h 60000");
            let asks = format!("{command} k w {HOUR} BLOCK 0{session}");
            let mut waiter = Client::waits(&server, &asks);
            let mut pipe = redis::pipe();
            pipe.cmd("RWLOCK.UNLOCK").arg(&["k", "h"]);
            pipe.cmd(&format!("RWLOCK.{command}")).arg(&["k", "w", "60000", "ONCE"]);
            pipe.cmd("CLIENT").arg(&["UNBLOCK", &waiter.id.to_string(), "ERROR"]);
            pipe.query::<Vec<redis::Value>>(&mut con).expect("all replies");
            let is_granted = !closes && waiter.reply().is_ok();
            // What is to be taken back is, when the next command comes.
            run(&mut con, "RWLOCK.RENEW other nobody 1000").expect_err("not held");
            let bound_to = if is_granted && !session.is_empty() { waiter.id } else { 0 };
            let expected = [("w".to_owned(), mode.to_owned(), 1, bound_to)];
            let held = holders(&mut con, "k");
            assert_eq!(held, expected, "{asks}: granted: {is_granted}");
        }
    }
}
