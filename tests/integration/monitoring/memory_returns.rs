//! Memory that locks, and the module itself, took is given back when they go.

use redis::{Connection, Pipeline};

use serial_test::serial;
use support::observe::run;
use support::{assert_ok, library, unload, wait_until, Client, Server};

/// Many enough to take some MB.
const LOCKS: usize = 30_000;

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().expect("a number")
}

/// Sends a command for each lock, many at a time.
fn for_each_lock(con: &mut Connection, command: impl Fn(usize) -> Vec<String>) {
    for first in (0..LOCKS).step_by(1_000) {
        let mut pipeline = Pipeline::new();
        for lock in first..first + 1_000 {
            let words = command(lock);
            let mut words = words.iter();
            let command = pipeline.cmd(words.next().expect("a name"));
            words.for_each(|word| _ = command.arg(word));
            pipeline.ignore();
        }
        pipeline.query::<()>(con).expect("no error");
    }
}

fn take_all(con: &mut Connection, lease: u32) {
    for_each_lock(con, |lock| {
        let (lock, lease) = (format!("a-lock-with-a-long-name-{lock}"), lease.to_string());
        vec!["RWLOCK.WLOCK".into(), lock, "me".into(), lease]
    });
}

/// Takes the locks, ends them with `end`, and waits until the memory is given back.
fn left_over(end: impl Fn(&mut Connection)) {
    let server = Server::builder().start();
    let mut con = server.connection();
    // What the first locks make the server and the module keep for good.
    assert_ok(run(&mut con, "RWLOCK.WLOCK first me 60000"));
    run(&mut con, "RWLOCK.UNLOCK first me").expect("it is held");
    let before = used_memory(&server);
    take_all(&mut con, 3_600_000);
    assert!(used_memory(&server) - before > 4_000_000, "locks take memory");
    end(&mut con);
    wait_until("the memory is given back", || used_memory(&server) - before < 400_000);
}

#[test]
fn of_locks_that_were_unlocked() {
    left_over(|con| {
        for_each_lock(con, |lock| {
            let lock = format!("a-lock-with-a-long-name-{lock}");
            vec!["RWLOCK.UNLOCK".into(), lock, "me".into()]
        });
    });
}

#[test]
fn of_locks_that_were_flushed() {
    left_over(|con| assert_ok(run(con, "FLUSHALL")));
}

#[test]
fn of_locks_that_lapsed() {
    left_over(|con| {
        for_each_lock(con, |lock| {
            let lock = format!("a-lock-with-a-long-name-{lock}");
            vec!["PEXPIRE".into(), lock, "1".into()]
        });
    });
}

#[test]
fn of_a_module_that_was_unloaded() {
    let server = Server::builder().start();
    let path = library(&server);
    let mut con = server.connection();
    let mut unloaded = Vec::new();
    for _ in 0..4 {
        for lock in 0..1_000 {
            assert_ok(run(&mut con, &format!("RWLOCK.RLOCK lock:{lock} me 60000")));
        }
        assert_ok(run(&mut con, "FLUSHALL"));
        unload(&mut con);
        unloaded.push(used_memory(&server));
        if unloaded.len() < 4 {
            assert_ok(run(&mut con, &format!("MODULE LOAD {path}")));
        }
    }
    // redis-module makes a context at each load, and has no way to free it: some
    // 18 KB in the server. The first time the server keeps some more.
    wait_until("no more than 24 KB are kept each time", || {
        (used_memory(&server) - unloaded[1]) / 2 < 24_000
    });
}

/// A thousand connections: not beside others of that kind.
#[test]
#[serial]
fn of_waiters_that_were_answered() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut wait_and_be_granted = |waiters: usize| {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock writer 600000"));
        let readers: Vec<Client> = (0..waiters)
            .map(|n| Client::sends(&server, &format!("RLOCK lock reader{n} 600000 BLOCK 0")))
            .collect();
        wait_until("all wait", || server.info("rwlock")["rwlock_waiters"] == waiters.to_string());
        run(&mut con, "RWLOCK.UNLOCK lock writer").expect("it is held");
        for mut reader in readers {
            reader.granted();
        }
        run(&mut con, "RWLOCK.FORCEUNLOCK lock").expect("it is held");
    };
    // What the first waiters make the server keep for good.
    wait_and_be_granted(10);
    let before = used_memory(&server);
    wait_and_be_granted(1_000);
    wait_until("the memory is given back", || used_memory(&server) - before < 250_000);
}
