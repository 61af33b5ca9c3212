//! Nobody starves because others come by: a command that is refused puts off
//! nothing that a waiter waits for.

use std::thread;
use std::time::Duration;

use redis::Connection;

use support::observe::{ends_at, inspect, run};
use support::{
    assert_error, assert_ok, assert_prompt, call, int, local_clock, wait_until, Client, Server,
};

/// How often a poller tries.
const POLL: Duration = Duration::from_millis(20);

/// For how many tries of the pollers a waiter may go without its turn: far more
/// than it takes.
const TRIES: usize = 100;

fn set(server: &Server, name: &str, value: i64) {
    assert_ok(call!(server.connection(), "CONFIG", "SET", name, value));
}

/// Tries again and again, as many clients as there are lines, each a little later
/// than the one before it, until the lock has a holder.
#[track_caller]
fn poll_until_held(server: &Server, lock: &str, lines: &[&str]) {
    let mut con = server.connection();
    for _ in 0..TRIES {
        for line in lines {
            // Refused, or NOTHELD: all that matters is that somebody asked.
            drop(run(&mut con, line));
            thread::sleep(POLL / lines.len() as u32);
        }
        if int(inspect(&mut con, lock, "holders_total")) > 0 {
            return;
        }
    }
    panic!("{lock}: nobody holds it after {TRIES} tries of {lines:?}");
}

fn freed_without_memory(server: &Server) -> (Connection, Client) {
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK k a 600000"));
    let waiter = Client::waits(server, "WLOCK k b 600000 BLOCK 0");
    set(server, "maxmemory", 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    assert_error(run(&mut con, "RWLOCK.RENEW k a 1000"), "NOTHELD");
    (con, waiter)
}

#[test]
fn a_waiter_gets_a_free_lock_though_others_try_for_it() {
    let server = Server::builder().start();
    let (_, mut waiter) = freed_without_memory(&server);
    set(&server, "maxmemory", 0);
    poll_until_held(&server, "k", &["RWLOCK.WLOCK k c 1000"]);
    waiter.granted();
}

#[test]
fn a_waiter_gets_a_free_lock_though_others_ask_for_what_they_do_not_hold() {
    let server = Server::builder().start();
    for line in ["RENEW k c 1000", "UNLOCK k c", "DOWNGRADE k c 1000", "UPGRADE k c 1000"] {
        let (mut con, mut waiter) = freed_without_memory(&server);
        set(&server, "maxmemory", 0);
        poll_until_held(&server, "k", &[&format!("RWLOCK.{line}")]);
        waiter.granted();
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k b")), 1);
    }
}

#[test]
fn a_waiter_gets_a_free_lock_though_six_poll_when_memory_recovers() {
    let server = Server::builder().start();
    let (_, mut waiter) = freed_without_memory(&server);
    let polls = ["c", "d", "e", "f", "g", "h"].map(|owner| format!("RWLOCK.WLOCK k {owner} 1000"));
    set(&server, "maxmemory", 0);
    poll_until_held(&server, "k", &polls.each_ref().map(String::as_str));
    waiter.granted();
}

#[test]
fn a_waiter_gets_a_free_lock_though_six_poll_when_the_replicas_recover() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK k a 2000"));
    let mut waiter = Client::waits(&server, "WLOCK k b 600000 BLOCK 0");
    set(&server, "min-replicas-to-write", 1);
    wait_until("the hold lapses", || int(run(&mut con, "EXISTS k")) == 0);
    let polls = ["c", "d", "e", "f", "g", "h"].map(|owner| format!("RWLOCK.RLOCK k {owner} 1000"));
    set(&server, "min-replicas-to-write", 0);
    poll_until_held(&server, "k", &polls.each_ref().map(String::as_str));
    waiter.granted();
}

#[test]
fn a_reservation_ends_on_time_though_others_have_polled() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    let mut late = Vec::new();
    for round in 0..8 {
        let lock = format!("k{round}");
        assert_ok(run(&mut con, &format!("RWLOCK.WLOCK {lock} h 600000")));
        assert!(int(run(&mut con, &format!("RWLOCK.WLOCK {lock} p 1000 RESERVE 400"))) > 0);
        let mut waiter = Client::sends(&server, &format!("WLOCK {lock} b 600000 BLOCK 0"));
        assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} h"))), 1);
        let end = ends_at(&mut con, &format!("{{{lock}}}:wait_write"));
        // Then they stop: a look at a reservation that has ended would tell of it.
        while local_clock() < end - 100 {
            let holders = int(inspect(&mut con, &lock, "holders_total"));
            assert!(holders == 0 || local_clock() > end, "{holders} while it is reserved");
            assert!(int(run(&mut con, &format!("RWLOCK.WLOCK {lock} c 1000"))) > 0);
            assert_error(run(&mut con, &format!("RWLOCK.UNLOCK {lock} d")), "NOTHELD");
            thread::sleep(Duration::from_millis(7));
        }
        waiter.granted();
        late.push(local_clock() - end - 1);
    }
    assert_prompt("the end of a reservation", 10, &late);
}

#[test]
fn who_waits_for_many_readers_hears_that_the_lock_is_none_any_more() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for reader in 0..20 {
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK k r{reader} 600000")));
    }
    let mut waiter = Client::waits(&server, "WLOCK k w 1000 BLOCK 20000");
    // Nothing tells of this; the lock is looked at now and then.
    assert_eq!(int(run(&mut con, "HSET k mode neither")), 0);
    assert_error(waiter.reply(), "WRONGTYPE");
}
