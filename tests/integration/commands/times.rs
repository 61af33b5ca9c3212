//! Times that commands are given: leases, reservations and timeouts.

use redis::Connection;

use crate::commands::arguments::locks;
use support::unchanged::assert_unchanged;
use support::{assert_error, assert_ok, call, int, list, map, send, text, Server};

/// What is no lease, whatever the time.
const BAD_LEASES: [&str; 21] = [
    "0",
    "-1",
    "-60000",
    "-9223372036854775808",
    "-9223372036854775809",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551617",
    "1.0",
    "1.5",
    "1e3",
    "",
    " ",
    " 1",
    "1 ",
    "+1",
    "-0",
    "0x10",
    "1\0",
    "1,000",
    "lease",
];

/// A lock for each command in which it would succeed, with its lease left out.
const LEASED: [&[&str]; 8] = [
    &["RWLOCK.RLOCK", "free", "me"],
    &["RWLOCK.RLOCK", "read", "me"],
    &["RWLOCK.WLOCK", "free", "me"],
    &["RWLOCK.WLOCK", "write", "me"],
    &["RWLOCK.RENEW", "read", "me"],
    &["RWLOCK.RENEW", "write", "me"],
    &["RWLOCK.UPGRADE", "read", "me"],
    &["RWLOCK.DOWNGRADE", "write", "me"],
];

fn now(con: &mut Connection) -> i64 {
    let time = list(call!(con, "TIME"));
    let part = |value| text(value).parse::<i64>().expect("a number");
    part(&time[0]) * 1000 + part(&time[1]) / 1000
}

/// The server's own words, as it says them of SET, and what is expected.
fn invalid_expire(con: &mut Connection, command: &str) -> String {
    let own = assert_error(call!(con, "SET", "k", "v", "PX", 0), "ERR invalid expire time");
    let own = own.replace("'set'", &format!("'{}'", command.to_lowercase()));
    format!("{own}: the lease is an integer of milliseconds, 1 or more")
}

#[test]
fn a_lease_that_is_no_positive_time_is_the_servers_own_error() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    let too_late = (i64::MAX - now(&mut con) + 1).to_string();
    for words in LEASED {
        let error = invalid_expire(&mut con, words[0]);
        assert!(error.starts_with("ERR invalid expire time in 'rwlock."), "{error}");
        for lease in BAD_LEASES.into_iter().chain([too_late.as_str()]) {
            let result =
                assert_unchanged(&mut con, |con| send(con, words.iter().copied().chain([lease])));
            assert!(result.is_err(), "{words:?} {lease:?}: {result:?}");
            assert_eq!(assert_error(result, "ERR"), error, "{words:?} {lease:?}");
        }
    }
    let error = invalid_expire(&mut con, "rwlock.wlock");
    // Refused before anything else is looked at, so also when it is not needed.
    for lock in ["free", "read", "write"] {
        for time in BAD_LEASES.into_iter().chain([too_late.as_str()]) {
            let words = ["RWLOCK.WLOCK", lock, "you", "60000", "RESERVE", time];
            let result = assert_unchanged(&mut con, |con| send(con, words));
            assert_eq!(assert_error(result, "ERR"), error, "{words:?}");
        }
    }
}

#[test]
fn the_shortest_and_the_longest_lease_are_granted() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // Late enough to be beyond any other lease, early enough for a slow test.
    let longest = i64::MAX - now(&mut con) - 60_000;
    for words in LEASED {
        for lease in [1, longest] {
            locks(&mut con);
            let lease = lease.to_string();
            assert_ok(send(&mut con, words.iter().copied().chain([lease.as_str()])));
        }
        let end = int(call!(con, "PEXPIRETIME", words[1]));
        assert!(end >= i64::MAX - 61_000, "{words:?} ends at {end}");
        let picture = map(call!(con, "RWLOCK.INSPECT", words[1]));
        assert!(int(&picture["ttl"]) > longest - 60_000);
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", words[1], "me", "ALL")), 1);
    }
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 600_000));
    int(call!(con, "RWLOCK.WLOCK", "k", "you", 1, "RESERVE", longest));
    assert!(int(call!(con, "PEXPIRETIME", "{k}:wait_write")) >= i64::MAX - 61_000);
}

/// What is no timeout, with what is said of it.
const BAD_TIMEOUTS: [(&str, &str); 16] = [
    ("-1", "ERR timeout is negative"),
    ("-9223372036854775808", "ERR timeout is negative"),
    ("-9223372036854775809", NO_TIMEOUT),
    ("9223372036854775807", NO_TIMEOUT),
    ("9223372036854775808", NO_TIMEOUT),
    ("18446744073709551617", NO_TIMEOUT),
    ("1.0", NO_TIMEOUT),
    ("1e3", NO_TIMEOUT),
    ("", NO_TIMEOUT),
    (" 1", NO_TIMEOUT),
    ("1 ", NO_TIMEOUT),
    ("+1", NO_TIMEOUT),
    ("01", NO_TIMEOUT),
    ("-0", NO_TIMEOUT),
    ("1\0", NO_TIMEOUT),
    ("SESSION", NO_TIMEOUT),
];

/// As of BLPOP.
const NO_TIMEOUT: &str = "ERR timeout is not an integer or out of range";

#[test]
fn a_timeout_that_is_no_time_is_refused_whether_it_is_needed_or_not() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    assert_ok(call!(con, "RWLOCK.RLOCK", "shared", "me", 600_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "shared", "you", 600_000));
    let now = now(&mut con);
    let too_late = (i64::MAX - now + 1).to_string();
    let calls = [
        ["RWLOCK.RLOCK", "free", "me"],
        ["RWLOCK.RLOCK", "read", "me"],
        ["RWLOCK.RLOCK", "write", "you"],
        ["RWLOCK.WLOCK", "free", "me"],
        ["RWLOCK.WLOCK", "write", "me"],
        ["RWLOCK.WLOCK", "write", "you"],
        ["RWLOCK.UPGRADE", "read", "me"],
        ["RWLOCK.UPGRADE", "shared", "me"],
        ["RWLOCK.UPGRADE", "free", "me"],
    ];
    for call in calls {
        let timeouts = BAD_TIMEOUTS.into_iter().chain([(too_late.as_str(), NO_TIMEOUT)]);
        for (timeout, error) in timeouts {
            let words = call.into_iter().chain(["60000", "BLOCK", timeout]);
            let result = assert_unchanged(&mut con, |con| send(con, words));
            assert!(result.is_err(), "{call:?} {timeout:?}: {result:?}");
            assert_eq!(assert_error(result, "ERR"), error, "{call:?} {timeout:?}");
        }
    }
    assert!(list(call!(con, "RWLOCK.QUEUES")).is_empty(), "nobody waits");
    // A free lock, or a holder, needs no patience, however much there is.
    let longest = i64::MAX - now - 60_000;
    for timeout in [0, 1, longest] {
        assert_ok(call!(con, "RWLOCK.RLOCK", "free", "me", 60_000, "BLOCK", timeout));
        assert_ok(call!(con, "RWLOCK.WLOCK", "write", "me", 60_000, "BLOCK", timeout));
        assert_ok(call!(con, "RWLOCK.UPGRADE", "read", "me", 60_000, "BLOCK", timeout));
    }
}
