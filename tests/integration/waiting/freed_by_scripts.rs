//! The scripts of Redisson clients serve the queue.

use std::thread;
use std::time::{Duration, Instant};

use redis::Value;
use support::redisson::Redisson;
use support::{int, on_this_machine, wait_until, Call, Crowd, Server};

/// How often each is tried; the best counts against a bound that only the
/// server's own clock could miss, the median against one that is promised.
const ROUNDS: usize = 5;

/// Well below the time after which the server would look at a lock that is
/// waited for without being told.
const AT_ONCE: Duration = Duration::from_millis(25);

#[test]
fn scripts_that_free_a_lock_serve_its_queue() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    let cases = [
        ("write unlock", true, scripts.write_unlock("k", "h", "1")),
        ("force write", true, scripts.force_write_unlock("k")),
        ("read unlock", false, scripts.read_unlock("k", "h", "2")),
        ("force read", false, scripts.force_read_unlock("k")),
    ];
    for (what, writes, frees) in cases {
        for request in ["RLOCK k a 100000 BLOCK 0", "WLOCK k a 100000 BLOCK 0"] {
            if !writes && request.starts_with('R') {
                continue;
            }
            let mut best = Duration::MAX;
            for round in 0..ROUNDS {
                crowd.plain("FLUSHALL");
                // Taken by the module or by a script: it makes no difference.
                match (writes, round % 2) {
                    (true, 0) => drop(crowd.con.call(&scripts.write_lock("k", "h", 100_000))),
                    (false, 0) => drop(crowd.con.call(&scripts.read_lock("k", "h", 100_000))),
                    (true, _) => crowd.ok("WLOCK k h 100000"),
                    (false, _) => crowd.ok("RLOCK k h 100000"),
                }
                let mut waiter = crowd.waits(request);
                let started = Instant::now();
                assert_eq!(int(crowd.con.call(&frees)), 1, "{what}");
                best = best.min(waiter.granted() - started);
            }
            assert!(best < on_this_machine(AT_ONCE, ROUNDS), "{what}, {request}: {best:?}");
        }
    }
}

#[test]
fn one_of_several_readers_that_leaves_by_script_lets_no_writer_in() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    crowd.ok("RLOCK k a 100000");
    assert_eq!(crowd.con.call(&scripts.read_lock("k", "b", 100_000)), Ok(Value::Nil));
    let mut waiter = crowd.waits("WLOCK k w 100000 BLOCK 0");
    assert_eq!(int(crowd.con.call(&scripts.read_unlock("k", "a", "1"))), 0);
    assert_eq!(crowd.waiting("k"), [waiter.id]);
    assert_eq!(int(crowd.con.call(&scripts.read_unlock("k", "b", "2"))), 1);
    waiter.granted();
}

#[test]
fn a_lock_taken_by_a_script_serves_the_queue_when_it_lapses() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    for writes in [true, false] {
        let lock = match writes {
            true => scripts.write_lock("k", "h", 150),
            false => scripts.read_lock("k", "h", 150),
        };
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            crowd.plain("FLUSHALL");
            let asked = Instant::now();
            assert_eq!(crowd.con.call(&lock), Ok(Value::Nil));
            let ends = Instant::now() + Duration::from_millis(150);
            let mut waiter = crowd.client();
            waiter.send("WLOCK k a 100000 BLOCK 0");
            let at = waiter.granted();
            // Less one: from 7.4 on, Redis removes a key in the very ms of its
            // expiry when it clears away what has expired.
            assert!(at >= asked + Duration::from_millis(149), "it had not lapsed");
            late.push(at.saturating_duration_since(ends));
        }
        late.sort();
        assert!(late[ROUNDS / 2] <= on_this_machine(Duration::from_millis(10), ROUNDS), "{late:?}");
    }
}

#[test]
fn a_downgrade_by_script_lets_readers_in_soon() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    let (write, read) =
        (scripts.write_lock("k", "h", 100_000), scripts.read_lock("k", "h", 100_000));
    let unlock = scripts.write_unlock("k", "h", "1");
    // When the writer reads before somebody waits, and when it does so after;
    // taken by scripts alone or by the module first.
    for (before, by_module) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            crowd.plain("FLUSHALL");
            match by_module {
                true => crowd.ok("WLOCK k h 100000"),
                false => assert_eq!(crowd.con.call(&write), Ok(Value::Nil)),
            }
            if before {
                assert_eq!(crowd.con.call(&read), Ok(Value::Nil));
            }
            let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
            let writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
            if !before {
                assert_eq!(crowd.con.call(&read), Ok(Value::Nil));
            }
            let started = Instant::now();
            assert_eq!(int(crowd.con.call(&unlock)), 1);
            took.push(reader.granted() - started);
            assert_eq!(crowd.holders("k"), "a read, h read");
            assert_eq!(crowd.waiting("k"), [writer.id]);
            drop(writer);
            wait_until("nobody waits", || crowd.queue("k").is_empty());
        }
        took.sort();
        assert!(
            took[ROUNDS / 2] <= on_this_machine(Duration::from_millis(100), ROUNDS),
            "before {before}, by the module {by_module}: {took:?}"
        );
    }
}

#[test]
fn a_downgrade_by_script_after_a_grant_lets_readers_in_soon() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    let unlock = scripts.write_unlock("k", "h", "1");
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        crowd.plain("FLUSHALL");
        crowd.ok("RLOCK k h 100000");
        crowd.ok("RLOCK k x 100000");
        let mut upgrade = crowd.waits("UPGRADE k h 100000 BLOCK 0");
        let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
        // The lock of one who begins to wait is looked at 50 ms later, and that look
        // would find the downgrade too: it is to be over.
        thread::sleep(Duration::from_millis(120));
        crowd.gives("UNLOCK k x", 0);
        upgrade.granted();
        let started = Instant::now();
        assert_eq!(int(crowd.con.call(&unlock)), 1);
        took.push(reader.granted() - started);
    }
    took.sort();
    assert!(took[ROUNDS / 2] <= on_this_machine(Duration::from_millis(100), ROUNDS), "{took:?}");
}
