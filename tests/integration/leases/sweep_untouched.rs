//! The sweep leaves keys as unused as it finds them.

use std::ops::RangeInclusive;

use support::observe::run;
use support::{assert_ok, bytes, call, int, send, wait_until, Server};

/// Hashes: two that are no lock, one that looks like one that nobody holds, and
/// one that is held.
const HASHES: [(&str, &str); 4] = [
    ("plain", "HSET plain field value"),
    ("moded", "HSET moded mode fast gear 4"),
    ("lapsed", "HSET lapsed mode read somebody 1"),
    ("held", "RWLOCK.WLOCK held somebody 600000"),
];

/// The keys are as they were before a sweep, as OBJECT `what` tells.
fn assert_untouched(policy: &str, restore: [&str; 2], what: &str, expected: RangeInclusive<i64>) {
    let server =
        Server::builder().config("maxmemory", "1gb").config("maxmemory-policy", policy).start();
    let mut con = server.connection();
    for (key, command) in HASHES {
        run(&mut con, command).expect(command);
        let dump = bytes(call!(con, "DUMP", key));
        assert_ok(call!(con, "RESTORE", key, 600_000, dump, "REPLACE", restore[0], restore[1]));
    }
    // Whoever becomes a primary looks at all keys.
    assert_ok(run(&mut con, "REPLICAOF 127.0.0.1 1"));
    assert_ok(run(&mut con, "REPLICAOF NO ONE"));
    wait_until("the sweep is over", || server.info("rwlock")["rwlock_sweep"] == "done");
    for (key, _) in HASHES {
        let found = int(send(&mut con, ["OBJECT", what, key]));
        // A lock that is held is in use.
        if key != "held" {
            assert!(expected.contains(&found), "{policy}: {what} of {key}: {found}");
        }
    }
}

#[test]
fn the_idle_time_of_a_hash_outlives_the_sweep() {
    assert_untouched("allkeys-lru", ["IDLETIME", "5000"], "IDLETIME", 5_000..=6_000);
}

#[test]
fn a_sweep_is_no_use_that_counts_under_lfu() {
    // At so low a count the server counts each use.
    assert_untouched("allkeys-lfu", ["FREQ", "0"], "FREQ", 0..=0);
}
