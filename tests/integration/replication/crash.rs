//! A server is killed while its clients work.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, RedisResult};

use support::observe::{ends_at, run};
use support::{assert_ok, int, wait_until, Server};

const CLIENTS: usize = 24;
const LEASE: i64 = 600_000;

/// A lock of one client, as far as the server has acknowledged it.
struct Known {
    lock: String,
    owner: usize,
    /// When it ends, or None when it was given back.
    ends: Option<RangeInclusive<i64>>,
}

/// Takes lock after lock until the server is gone.
fn work(owner: usize, con: &mut Connection, done: &AtomicU32) -> Vec<Known> {
    let mut known = Vec::new();
    let mut number = 0;
    while work_on_one(owner, number, con, &mut known).is_ok() {
        done.fetch_add(1, Ordering::Relaxed);
        number += 1;
    }
    known
}

/// Takes a lock, and gives every third one back: a release must not get lost
/// either. An error is the end of the server.
fn work_on_one(
    owner: usize,
    number: usize,
    con: &mut Connection,
    known: &mut Vec<Known>,
) -> RedisResult<()> {
    let lock = format!("lock-{owner}-{number}");
    let command = if number % 2 == 0 { "RLOCK" } else { "WLOCK" };
    let sent = local_clock();
    assert_ok(run(con, &format!("RWLOCK.{command} {lock} {owner} {LEASE}"))?);
    let ends = sent + LEASE..=local_clock() + LEASE;
    known.push(Known { lock: lock.clone(), owner, ends: Some(ends) });
    if number % 3 == 0 {
        // Whether a release that is not acknowledged was carried out is open.
        known.pop();
        assert_eq!(int(run(con, &format!("RWLOCK.UNLOCK {lock} {owner}"))?), 1);
        known.push(Known { lock, owner, ends: None });
    } else {
        let end = int(run(con, &format!("PEXPIRETIME {lock}"))?);
        known.pop();
        known.push(Known { lock, owner, ends: Some(end..=end) });
    }
    Ok(())
}

/// The clock that this machine's servers go by.
fn local_clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
    i64::try_from(now.as_millis()).expect("a time in this age")
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    let mut server = Server::builder().aof().start();
    let done = AtomicU32::new(0);
    let known: Vec<Known> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|owner| {
                let mut con = server.connection();
                let done = &done;
                scope.spawn(move || work(owner, &mut con, done))
            })
            .collect();
        wait_until("they are at work", || done.load(Ordering::Relaxed) >= 1_000);
        server.kill9();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    assert!(known.len() >= 1_000);

    server.restart();
    let mut con = server.connection();
    for Known { lock, owner, ends } in known {
        let end = ends_at(&mut con, &lock);
        let Some(ends) = ends else {
            assert_eq!(end, -2, "{lock} was given back");
            continue;
        };
        assert!(ends.contains(&end), "{lock} ends at {end}, not {ends:?}");
        if int(run(&mut con, &format!("HEXISTS {lock} {owner}"))) == 1 {
            let timeout = format!("{{{lock}}}:{owner}:rwlock_timeout:1");
            assert_eq!(ends_at(&mut con, &timeout), end, "{lock}");
        }
        assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} {owner}"))), 1, "{lock}");
    }
}
