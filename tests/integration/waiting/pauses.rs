//! Waiters, leases and sessions while writes are paused, while the server
//! loads, and around MODULE UNLOAD.

use std::thread;
use std::time::Duration;

use redis::Connection;

use support::observe::{assert_same_keys, ends_at, info_number, inspect, keyspace, run};
use support::{
    assert_error, assert_ok, assert_prompt, call, int, library, list, local_clock, map, text,
    unload, wait_synced, wait_until, Client, Server,
};

/// Pauses writes, or all commands, for as many ms.
fn pause(con: &mut Connection, ms: i64, what: &str) {
    assert_ok(call!(con, "CLIENT", "PAUSE", ms, what));
}

#[test]
fn nothing_is_written_granted_or_renewed_while_writes_are_paused() {
    let server = Server::builder().start();
    let replica = Server::builder().replica_of(&server).start();
    wait_synced(&server, &replica);
    let mut con = server.connection();
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    let mut holder = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK lapses a 800"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK reads a 800"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK reads b 60000"));
    assert_ok(run(&mut holder, "RWLOCK.WLOCK session a 600 SESSION"));
    let mut gone = server.connection();
    assert_ok(run(&mut gone, "RWLOCK.WLOCK closed a 60000 SESSION"));
    assert_ok(run(&mut con, "RWLOCK.WLOCK left a 60000"));
    let mut waits = ["lapses", "session", "closed", "left"]
        .map(|lock| Client::waits(&server, &format!("WLOCK {lock} next 60000 BLOCK 0")));
    let mut times_out = Client::waits(&server, "WLOCK reads c 60000 BLOCK 500");
    let mut stopped = Client::waits(&server, "WLOCK reads d 60000 BLOCK 0");

    pause(&mut con, 100_000, "WRITE");
    let offset = info_number(&server, "replication", "master_repl_offset");
    // Its commands wait, and so do those that would give the locks back.
    let mut late = Client::sends(&server, "UNLOCK left a");
    drop(gone);
    assert_eq!(int(call!(con, "CLIENT", "UNBLOCK", stopped.id, "TIMEOUT")), 1);
    assert!(int(stopped.reply()) > 0);
    assert!(int(times_out.reply()) > 0);
    let resumes = local_clock() + 900;
    while local_clock() < resumes {
        for lock in ["lapses", "session", "closed", "left"] {
            assert_eq!(int(inspect(&mut con, lock, "waiters_total")), 1, "{lock}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let now = info_number(&server, "replication", "master_repl_offset");
    // The server's own PINGs to its replica excepted, which are none while
    // writes are paused.
    assert_eq!(now, offset, "something was written");

    assert_ok(call!(con, "CLIENT", "UNPAUSE"));
    assert_eq!(int(late.reply()), 1);
    for waiter in &mut waits {
        waiter.granted();
    }
    wait_until("the reader's hold has gone", || int(run(&mut con, "HLEN reads")) == 2);
    assert_error(run(&mut holder, "RWLOCK.UNLOCK session a"), "NOTHELD");
    wait_synced(&server, &replica);
    assert_same_keys("the replica", &keyspace(&server), &keyspace(&replica));
}

#[test]
fn a_pause_of_everything_ends_and_all_goes_on() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 1000"));
    assert_ok(run(&mut con, "RWLOCK.WLOCK session s 60000 SESSION"));
    let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 0");
    let mut times_out = Client::waits(&server, "WLOCK session b 60000 BLOCK 500");
    // The pause begins now or later, and outlasts the lease.
    let paused = local_clock();
    pause(&mut con, 1_500, "ALL");
    assert!(int(times_out.reply()) > 0);
    assert!(local_clock() < paused + 1_500, "answered only when the pause was over");
    waiter.granted();
    assert!(local_clock() >= paused + 1_500, "granted while paused");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK session s")), 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b")), 1);
}

#[test]
fn a_waiter_is_on_time_though_writes_are_paused() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
    let mut late = Vec::new();
    for _ in 0..9 {
        let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 500");
        let waited =
            || int(&map(&list(inspect(&mut server.connection(), "lock", "waiters"))[0])["timeout"]);
        let until = local_clock() + waited();
        pause(&mut con, 100_000, "WRITE");
        assert!(int(waiter.reply()) > 0);
        late.push((local_clock() - until).max(0));
        assert_ok(call!(con, "CLIENT", "UNPAUSE"));
    }
    assert_prompt("a timeout", 10, &late);
}

#[test]
fn the_module_is_not_unloaded_while_clients_wait_and_goes_cleanly_otherwise() {
    let server = Server::builder().start();
    let path = library(&server);
    let mut con = server.connection();
    for round in 0..3 {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
        let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 0");
        let refusal = assert_error(run(&mut con, "MODULE UNLOAD rwlock"), "ERR");
        assert!(refusal.contains("blocked clients"), "{refusal}");
        // It works as before.
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
        waiter.granted();
        for end in 0..4 {
            // However a wait ends, nothing of it is in the way.
            let timeout = if end == 0 { 500 } else { 0 };
            let mut waiter = Client::waits(&server, &format!("RLOCK lock c 60000 BLOCK {timeout}"));
            match end {
                0 => assert!(int(waiter.reply()) > 0),
                1 => {
                    assert_eq!(int(call!(con, "CLIENT", "UNBLOCK", waiter.id, "ERROR")), 1);
                    assert_error(waiter.reply(), "UNBLOCKED");
                }
                2 => assert_eq!(int(call!(con, "CLIENT", "KILL", "ID", waiter.id)), 1),
                _ => drop(waiter),
            }
            wait_until("nobody waits", || int(inspect(&mut con, "lock", "waiters_total")) == 0);
        }

        // Leases and sessions run.
        let mut holder = server.connection();
        assert_ok(run(&mut holder, "RWLOCK.WLOCK session s 500 SESSION"));
        assert_ok(run(&mut con, "RWLOCK.WLOCK short a 700"));
        let end = ends_at(&mut con, "short");
        unload(&mut con);
        assert_error(run(&mut con, "RWLOCK.INSPECT short"), "ERR unknown command");
        let written = ends_at(&mut con, "session");
        assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
        assert_ok(call!(con, "MODULE", "LOAD", &path));
        // The session went with the module, its hold with its lease.
        assert_eq!(ends_at(&mut con, "session"), written);
        let mut waiter = Client::sends(&server, &format!("WLOCK short b{round} 60000 BLOCK 0"));
        waiter.granted();
        assert!(local_clock() > end, "before the end of the lease");
        wait_until("it lapses", || int(run(&mut con, "EXISTS session")) == 0);
        drop(holder);
        assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK lock")), 1);
        assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK short")), 1);
    }
}

#[test]
fn waiters_outlive_a_reload_of_the_data() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // From 7.4 on, the server's own search removes a key in the very ms of its
    // expiry, and not after it.
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
    assert_ok(run(&mut con, "RWLOCK.WLOCK short a 1500"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK reads a 60000"));
    let mut session = server.connection();
    assert_ok(run(&mut session, "RWLOCK.RLOCK reads s 60000 SESSION"));
    let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 0");
    let mut lapse = Client::waits(&server, "WLOCK short b 60000 BLOCK 0");
    let mut upgrade = Client::waits(&server, "UPGRADE reads a 60000 BLOCK 0");
    let end = ends_at(&mut con, "short");
    for _ in 0..3 {
        assert_ok(call!(con, "DEBUG", "RELOAD"));
        assert_eq!(int(inspect(&mut con, "lock", "waiters_total")), 1);
        assert_eq!(text(inspect(&mut con, "lock", "mode")), "write");
    }
    lapse.granted();
    assert!(local_clock() > end);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    waiter.granted();
    assert_eq!(int(run(&mut session, "RWLOCK.UNLOCK reads s")), 0);
    upgrade.granted();
}
