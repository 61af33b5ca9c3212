//! The fence key: how long it lives, what is sent of it, and what else it may
//! hold.

use redis::Connection;

use crate::commands::foreign_hashes::{make, BAD_COUNTS, OTHER_TYPES};
use crate::fencing::tokens::{fenced, micros};
use support::observe::{clock, ends_at, run};
use support::unchanged::assert_unchanged;
use support::wire::{assert_plain, ReplicationStream};
use support::{assert_error, assert_ok, call, int, map, refused, text, wait_until, Server};

const KEY: &str = "{k}:rwlock_fence";
const LARGEST: i64 = (1 << 53) - 1;

fn unlock(con: &mut Connection) {
    assert_eq!(int(run(con, "RWLOCK.UNLOCK k a ALL")), 1);
}

#[test]
fn it_lives_for_seven_days_from_the_last_token_on() {
    let week = 7 * 86_400_000;
    let server = Server::builder().start();
    let mut con = server.connection();
    for again in ["WLOCK k a 60000 FENCE", "WLOCK k a 60000 FENCE", "WLOCK k a 60000 FENCE ONCE"] {
        let before = clock(&mut con);
        fenced(&mut con, again);
        let end = ends_at(&mut con, KEY);
        assert!((before + week..=clock(&mut con) + week).contains(&end), "{before} {end}");
        // Nothing else touches it.
        assert_eq!(int(call!(con, "PEXPIREAT", KEY, end - 1_000)), 1);
        for other in ["WLOCK k a 60000", "RENEW k a 90000", "INSPECT k", "UNLOCK k a"] {
            run(&mut con, &format!("RWLOCK.{other}")).expect(other);
            assert_eq!(ends_at(&mut con, KEY), end - 1_000, "{other}");
        }
        run(&mut con, "RWLOCK.WLOCK k a 60000 ONCE").expect("hold it for the next");
    }
}

#[test]
fn fence_ttl_says_how_long_it_lives() {
    let server = Server::builder().module_arguments("fence-ttl 5000").start();
    let mut con = server.connection();
    let before = clock(&mut con);
    fenced(&mut con, "WLOCK k a 60000 FENCE");
    let end = ends_at(&mut con, KEY);
    assert!((before + 5_000..=clock(&mut con) + 5_000).contains(&end), "{before} {end}");

    // 0: for ever.
    let server = Server::builder().module_arguments("Fence-TTL 0").start();
    let mut con = server.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(ends_at(&mut con, KEY), -1);
    // An end that somebody has given it goes.
    assert_eq!(int(call!(con, "PEXPIRE", KEY, 60_000)), 1);
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), first);
    assert_eq!(ends_at(&mut con, KEY), -1);
    for wrong in ["-1", "x", "1.5", "1000000000000001", "9223372036854775807"] {
        let started = Server::builder().module_arguments(format!("fence-ttl {wrong}")).try_start();
        assert!(started.is_err(), "{wrong}");
    }
}

#[test]
fn tokens_increase_when_it_expires() {
    let server = Server::builder().module_arguments("fence-ttl 1").start();
    let mut con = server.connection();
    let mut last = 0;
    for _ in 0..20 {
        let next = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(next > last, "{next} after {last}");
        last = next;
        wait_until("the key expires", || int(run(&mut con, "EXISTS {k}:rwlock_fence")) == 0);
        // The tenure's token is lost as well.
        let next = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(next > last, "{next} after {last}");
        last = next;
        unlock(&mut con);
        wait_until("the key expires", || int(run(&mut con, "EXISTS {k}:rwlock_fence")) == 0);
    }
}

#[test]
fn it_outlives_its_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for end in ["UNLOCK k a", "FORCEUNLOCK k", "FORCEUNLOCK k WRITE"] {
        let first = fenced(&mut con, "WLOCK k a 60000 FENCE").to_string();
        let ends = ends_at(&mut con, KEY);
        assert_eq!(int(run(&mut con, &format!("RWLOCK.{end}"))), 1);
        assert_eq!(text(call!(con, "GET", KEY)), first, "{end}");
        assert_eq!(ends_at(&mut con, KEY), ends, "{end}");
        assert_eq!(int(run(&mut con, "DBSIZE")), 1, "{end}");
    }
    fenced(&mut con, "WLOCK k a 1 FENCE");
    wait_until("the lock lapses", || int(run(&mut con, "DBSIZE")) == 1);
    assert_eq!(int(run(&mut con, "EXISTS {k}:rwlock_fence")), 1);
    // It alone is no lock.
    assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK k")), 0);
}

#[test]
fn a_token_is_sent_with_its_hold_as_plain_commands() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut stream = ReplicationStream::attach(&server);
    let (token, sent) =
        stream.during(&mut con, |con| fenced(con, "WLOCK k a 60000 FENCE").to_string());
    let end = ends_at(&mut con, KEY).to_string();
    let lock_end = ends_at(&mut con, "k").to_string();
    let set = ["SET", KEY, &token, "PXAT", &end].map(str::to_owned).to_vec();
    assert_plain(&sent);
    assert_eq!(
        sent,
        [
            vec!["MULTI".to_owned()],
            ["HSET", "k", "mode", "write", "a:write", "1"].map(str::to_owned).to_vec(),
            ["PEXPIREAT", "k", &lock_end].map(str::to_owned).to_vec(),
            set,
            vec!["EXEC".to_owned()],
        ]
    );
    // Again: the same token, with its new end.
    let (again, sent) =
        stream.during(&mut con, |con| fenced(con, "WLOCK k a 1 ONCE FENCE").to_string());
    assert_eq!(again, token);
    let end = ends_at(&mut con, KEY).to_string();
    assert_eq!(sent, [["SET", KEY, &token, "PXAT", &end].map(str::to_owned).to_vec()]);

    let server = Server::builder().module_arguments("fence-ttl 0").start();
    let mut con = server.connection();
    let mut stream = ReplicationStream::attach(&server);
    let (token, sent) =
        stream.during(&mut con, |con| fenced(con, "WLOCK k a 60000 FENCE").to_string());
    assert!(sent.contains(&["SET", KEY, &token].map(str::to_owned).to_vec()), "{sent:?}");
}

#[test]
fn a_token_is_a_change_of_its_key_alone() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut watching = server.connection();
    let mut survives = |key: &str, line: &str| {
        assert_ok(call!(watching, "WATCH", key));
        run(&mut con, &format!("RWLOCK.{line}")).expect(line);
        assert_ok(run(&mut watching, "MULTI"));
        run(&mut watching, "EXEC").expect("end the transaction") != redis::Value::Nil
    };
    assert!(survives(KEY, "WLOCK k a 60000"));
    assert!(survives(KEY, "WLOCK k b 60000 FENCE"), "a refusal changes nothing");
    assert!(!survives(KEY, "WLOCK k a 60000 FENCE"));
    assert!(survives("k", "WLOCK k a 1 FENCE ONCE"));
    assert!(survives(KEY, "UNLOCK k a ALL"));
}

#[test]
fn a_key_that_holds_no_token_is_refused_and_nothing_changes() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut hostile: Vec<Vec<&str>> = OTHER_TYPES[2..].iter().map(|words| words.to_vec()).collect();
    hostile.push(vec!["HSET", "mode", "write"]);
    hostile.extend(BAD_COUNTS.map(|content| vec!["SET", content]));
    for words in hostile {
        make(&mut con, &words, KEY);
        refused!(&mut con, "WRONGTYPE", "RWLOCK.WLOCK", "k", "a", 60_000, "FENCE");
        // A hold of its own changes nothing in this, nor does a reservation.
        assert_ok(call!(con, "RWLOCK.WLOCK", "k", "a", 60_000));
        assert!(int(call!(con, "RWLOCK.WLOCK", "k", "b", 60_000, "FENCE", "RESERVE", 60_000)) > 0);
        refused!(&mut con, "WRONGTYPE", "RWLOCK.WLOCK", "k", "a", 90_000, "FENCE");
        refused!(&mut con, "WRONGTYPE", "RWLOCK.WLOCK", "k", "a", 90_000, "FENCE", "ONCE");
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "a")), 1);
        refused!(&mut con, "WRONGTYPE", "RWLOCK.WLOCK", "k", "b", 60_000, "FENCE");
        assert_ok(call!(con, "RWLOCK.WLOCK", "k", "b", 60_000));
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "b")), 1);
        assert_ok(call!(con, "RWLOCK.RLOCK", "k", "a", 60_000));
        refused!(&mut con, "WRONGTYPE", "RWLOCK.UPGRADE", "k", "a", 90_000, "FENCE");
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "a")), 1);
        assert_eq!(int(call!(con, "DEL", KEY)), 1);
    }
    fenced(&mut con, "WLOCK k a 60000 FENCE");
}

#[test]
fn beyond_the_largest_token_there_is_one_clear_error() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let error = "ERR the next fencing token would not be below 2^53";
    for last in [LARGEST, LARGEST + 1, i64::MAX] {
        assert_ok(call!(con, "SET", KEY, last));
        let text = refused!(&mut con, error, "RWLOCK.WLOCK", "k", "a", 60_000, "FENCE");
        assert_eq!(text, error);
        assert_ok(call!(con, "RWLOCK.WLOCK", "k", "a", 60_000));
        refused!(&mut con, error, "RWLOCK.WLOCK", "k", "a", 90_000, "FENCE", "ONCE");
        assert_eq!(int(&map(call!(con, "RWLOCK.INSPECT", "k"))["fence"]), last);
        unlock(&mut con);
        assert_ok(call!(con, "RWLOCK.RLOCK", "k", "a", 60_000));
        refused!(&mut con, error, "RWLOCK.UPGRADE", "k", "a", 90_000, "FENCE");
        unlock(&mut con);
    }
    // The last but one.
    assert_ok(call!(con, "SET", KEY, LARGEST - 1));
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), LARGEST);
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), LARGEST);
    unlock(&mut con);
    refused!(&mut con, error, "RWLOCK.WLOCK", "k", "a", 60_000, "FENCE");
    // The way out.
    assert_eq!(int(call!(con, "DEL", KEY)), 1);
    assert!(fenced(&mut con, "WLOCK k a 60000 FENCE") <= micros(&mut con));
}

#[test]
fn a_key_of_others_is_changed_only_by_fence() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "SET", KEY, "not a number"));
    for line in ["WLOCK k a 60000", "DOWNGRADE k a 60000", "UPGRADE k a 60000", "UNLOCK k a ALL"] {
        run(&mut con, &format!("RWLOCK.{line}")).expect(line);
        assert_eq!(text(call!(con, "GET", KEY)), "not a number", "{line}");
    }
    let result = assert_unchanged(&mut con, |con| call!(con, "RWLOCK.INSPECT", "k"));
    assert_error(result, "WRONGTYPE");
}
