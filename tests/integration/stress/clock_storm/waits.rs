//! The waits that go on while the clock is set.

use std::thread;
use std::time::{Duration, Instant};

use super::{Began, Storm, FOR_EVER, LATE};
use support::observe::{inspect, run};
use support::{assert_ok, int, text, Client, Random};

/// So much earlier may somebody hear of a time than we say it is, as two clocks are
/// not asked in one instant.
const EARLY: Duration = Duration::from_millis(5);

/// BLOCK's time.
pub fn times_out(storm: &Storm, mut random: Random) {
    let mut con = storm.server.connection();
    while storm.goes_on() {
        let ms = 10 + random.below(400);
        let began = Began::now(storm);
        assert!(int(run(&mut con, &format!("RWLOCK.WLOCK held b 1000 BLOCK {ms}"))) > 0);
        let timeout = Duration::from_millis(ms);
        assert!(began.at.elapsed() >= timeout, "after {:?} of {timeout:?}", began.at.elapsed());
        storm.assert_prompt("a timeout", &began, began.at + timeout);
    }
}

/// UNLOCK hands over.
pub fn hand_over(storm: &Storm) {
    let mut con = storm.server.connection();
    while storm.goes_on() {
        assert_ok(run(&mut con, &format!("RWLOCK.WLOCK handed a {FOR_EVER}")));
        let mut next = Client::waits(&storm.server, &format!("WLOCK handed b {FOR_EVER} BLOCK 0"));
        let began = Began::now(storm);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK handed a")), 1);
        next.granted();
        storm.assert_prompt("a hand-over", &began, began.at);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK handed b")), 1);
    }
}

/// Somebody deletes the lock.
pub fn deleted(storm: &Storm) {
    let mut con = storm.server.connection();
    while storm.goes_on() {
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK deleted a {FOR_EVER}")));
        let line = format!("WLOCK deleted b {FOR_EVER} BLOCK 0");
        let mut next = Client::waits(&storm.server, &line);
        let began = Began::now(storm);
        assert_eq!(int(run(&mut con, "DEL deleted")), 1);
        next.granted();
        storm.assert_prompt("a lock that was deleted", &began, began.at);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK deleted b")), 1);
    }
}

/// The connection of a session hold closes.
pub fn closes(storm: &Storm) {
    let mut con = storm.server.connection();
    while storm.goes_on() {
        let mut session = storm.server.connection();
        assert_ok(run(&mut session, &format!("RWLOCK.WLOCK closed a {FOR_EVER} SESSION")));
        let mut next = Client::waits(&storm.server, &format!("WLOCK closed b {FOR_EVER} BLOCK 0"));
        let began = Began::now(storm);
        drop(session);
        next.granted();
        storm.assert_prompt("a session that closed", &began, began.at);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK closed b")), 1);
    }
}

/// A lease of a session is renewed, whatever the clock does, unless that goes forward
/// by most of the lease at once.
pub fn renewed(storm: &Storm) {
    const LEASE: i64 = 900;
    let mut session = storm.server.connection();
    let mut con = storm.server.connection();
    while storm.goes_on() {
        assert_ok(run(&mut session, &format!("RWLOCK.WLOCK renewed a {LEASE} SESSION")));
        let mut began = Began::now(storm);
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = Began::now(storm);
            if text(inspect(&mut con, "renewed", "mode")) != "write" {
                // Its end was at least two thirds of the lease away.
                let forward =
                    storm.history.forward(began.at - Duration::from_millis(LEASE as u64), now.at);
                if forward < LEASE * 1_000 * 2 / 3 {
                    storm.assert_prompt("a renewal", &began, began.at + Duration::from_millis(300));
                }
                break;
            }
            began = now;
            if !storm.goes_on() {
                break;
            }
        }
        drop(run(&mut session, "RWLOCK.UNLOCK renewed a"));
    }
}

/// A lease ends: when the wall clock is past its end.
pub fn lapses(storm: &Storm, lock: u64, mut random: Random) {
    let mut con = storm.server.connection();
    while storm.goes_on() {
        let lease = 30 + random.below(400);
        let began = Began::now(storm);
        let from = began.at;
        assert_ok(run(&mut con, &format!("RWLOCK.WLOCK lapses{lock} a {lease}")));
        let end = int(run(&mut con, &format!("PEXPIRETIME lapses{lock}")));
        let line = format!("WLOCK lapses{lock} b {FOR_EVER} BLOCK 600");
        let mut next = Client::sends(&storm.server, &line);
        let reply = next.reply();
        let now = Instant::now();
        if end > 0 {
            // The first ms after the end.
            let beyond = (end + 1) * 1_000;
            match reply.expect("a reply") {
                redis::Value::Okay => {
                    let early = i64::try_from(EARLY.as_micros()).expect("a short time");
                    let lapsed = storm.history.beyond(beyond - early, Duration::ZERO, from, now);
                    assert!(lapsed.is_some(), "granted before {end}\n{}", storm.history.tail(now));
                    if let Some(due) = storm.history.beyond(beyond, LATE, from, now) {
                        storm.assert_prompt("a lapse", &began, due);
                    }
                }
                _ => {
                    if let Some(due) = storm.history.beyond(beyond, LATE, from, now) {
                        storm.assert_prompt("a lapse that nobody was granted", &began, due);
                    }
                }
            }
        }
        drop(run(&mut con, &format!("RWLOCK.FORCEUNLOCK lapses{lock}")));
    }
}
