//! LIST while many locks come and go: it misses none that is held all the time, and no call keeps
//! the server busy. `RWLOCK_LIST_LOCKS=1000000` for more locks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis::{Connection, Pipeline};

use support::{
    assert_ok, call, fresh_seed, int, list, map, number_from_environment, text, Random, Server,
};

/// How many locks there are when nobody says.
const LOCKS: u64 = 100_000;

/// Every so many locks one is held all the time.
const STAYS: u64 = 7;

/// How many times the locks are listed.
const ROUNDS: usize = 6;

/// How many times the calls are timed.
const LISTS: usize = 4;

/// How long the longest call may take, in µs, with COUNT 100.
const LIMIT: &str = "1000";

fn is_write(lock: u64) -> bool {
    lock % 3 != 0
}

/// Sends a command for each lock, many at a time.
fn for_each(con: &mut Connection, locks: impl Iterator<Item = u64>, take: bool) {
    let locks: Vec<u64> = locks.collect();
    for some in locks.chunks(1_000) {
        let mut pipeline = Pipeline::new();
        for lock in some {
            let name = format!("orders:{lock}");
            match take {
                true if is_write(*lock) => pipeline.cmd("RWLOCK.WLOCK").arg(name).arg("me"),
                true => pipeline.cmd("RWLOCK.RLOCK").arg(name).arg("me"),
                false => pipeline.cmd("RWLOCK.FORCEUNLOCK").arg(name),
            };
            if take {
                pipeline.arg(86_400_000).arg("ONCE");
            }
            pipeline.ignore();
        }
        pipeline.query::<()>(con).expect("no error");
    }
}

/// Takes and gives back locks in runs, so that the memory of locks grows, gets holes and is packed.
fn disturb(con: &mut Connection, locks: u64, seed: u64, done: &AtomicBool) {
    let mut random = Random::new(seed);
    let goes = |lock: &u64| lock % STAYS != 0;
    while !done.load(Ordering::Relaxed) {
        let (first, many) = (random.below(locks), random.below(locks / 2));
        let run = || (first..first + many).map(|lock| lock % (2 * locks)).filter(goes);
        for_each(con, run(), false);
        for_each(con, run().take(usize::try_from(random.below(many + 1)).unwrap_or(0)), true);
    }
}

#[test]
fn no_lock_that_is_held_all_the_time_is_missed() {
    let locks = number_from_environment("RWLOCK_LIST_LOCKS").unwrap_or(LOCKS);
    let seed = fresh_seed();
    println!("seed {seed}");
    let server = Server::builder().start();
    let mut con = server.connection();
    for_each(&mut con, 0..locks, true);
    let stay: BTreeSet<u64> = (0..locks).step_by(usize::try_from(STAYS).unwrap_or(1)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| disturb(&mut server.connection(), locks, seed, &done));
        for round in 0..ROUNDS {
            let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0_u64);
            while calls == 0 || cursor != "0" {
                let reply = list(call!(con, "RWLOCK.LIST", &cursor, "COUNT", 100));
                for row in list(&reply[1]) {
                    let row = map(&row);
                    let name = text(&row["key"]);
                    let lock = name.trim_start_matches("orders:").parse().expect("a number");
                    assert_eq!(text(&row["mode"]) == "write", is_write(lock), "{name}");
                    assert_eq!([int(&row["holders"]), int(&row["waiters"])], [1, 0], "{name}");
                    seen.insert(lock);
                }
                (cursor, calls) = (text(&reply[0]), calls + 1);
                assert!(calls < locks, "it ends");
            }
            let missed: Vec<_> = stay.difference(&seen).take(10).collect();
            assert!(missed.is_empty(), "round {round}: {missed:?}");
            println!("round {round}: {calls} calls, {} locks", seen.len());
        }
        done.store(true, Ordering::Relaxed);
    });
    let slow = always_slow(&server, locks);
    assert!(slow.is_empty(), "slow each time: {slow:?}");
}

/// The cursors of the calls that take longer than [`LIMIT`] in each of some lists. The server counts
/// the time in which it had no processor, too, but that is not at the same call each time.
fn always_slow(server: &Server, locks: u64) -> BTreeSet<String> {
    let mut con = server.connection();
    for_each(&mut con, 0..locks, true);
    for (name, value) in [
        ("latency-tracking-info-percentiles", "50 99 100"),
        ("slowlog-log-slower-than", LIMIT),
        ("slowlog-max-len", "100000"),
    ] {
        assert_ok(call!(con, "CONFIG", "SET", name, value));
    }
    let slow_calls = |con: &mut Connection| -> BTreeSet<String> {
        assert_ok(call!(con, "CONFIG", "RESETSTAT"));
        assert_ok(call!(con, "SLOWLOG", "RESET"));
        let (mut cursor, mut calls) = ("0".to_owned(), 0);
        while calls == 0 || cursor != "0" {
            let reply = list(call!(con, "RWLOCK.LIST", &cursor, "COUNT", 100));
            (cursor, calls) = (text(&reply[0]), calls + 1);
        }
        let info = &server.info("latencystats")["latency_percentiles_usec_rwlock.list"];
        println!("{locks} locks, COUNT 100, {calls} calls: {info} (µs)");
        let entries = list(call!(con, "SLOWLOG", "GET", -1));
        let words = entries.iter().map(|entry| list(&list(entry)[3]));
        let lists = words.filter(|words| text(&words[0]) == "RWLOCK.LIST");
        lists.map(|words| text(&words[1])).collect()
    };
    let mut slow = slow_calls(&mut con);
    for _ in 1..LISTS {
        slow = &slow & &slow_calls(&mut con);
    }
    slow
}
