//! What RWLOCK.LIST answers. That it misses no lock under load is for `stress/listing.rs`.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, RedisResult, Value};

use crate::access::rights::user;
use support::unchanged::{assert_unchanged, shown};
use support::{
    assert_error, assert_ok, bytes, call, fresh_seed, int, list, map, refused, send, text,
    wait_synced, wait_until, Crowd, Random, Server,
};

type Row = BTreeMap<String, Value>;

/// A page: the next cursor, and the rows.
fn page(reply: RedisResult<Value>) -> (String, Vec<Row>) {
    let parts = list(reply);
    assert_eq!(parts.len(), 2);
    (text(&parts[0]), list(&parts[1]).iter().map(map).collect())
}

/// The rows of all pages, by name.
#[track_caller]
fn all(con: &mut Connection, options: &[&str]) -> BTreeMap<String, Row> {
    let (mut cursor, mut rows) = ("0".to_owned(), BTreeMap::new());
    loop {
        let words = ["RWLOCK.LIST", &cursor];
        let (next, found) = page(send(con, words.iter().chain(options)));
        for row in found {
            let name = shown(&bytes(&row["key"]));
            assert!(rows.insert(name, row).is_none(), "nothing moves here, so nothing comes twice");
        }
        if next == "0" {
            return rows;
        }
        cursor = next;
    }
}

#[track_caller]
fn names(con: &mut Connection, options: &[&str]) -> Vec<String> {
    all(con, options).into_keys().collect()
}

#[test]
fn each_held_lock_is_listed_with_what_inspect_tells() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    assert_eq!(page(crowd.run("LIST 0")), ("0".into(), vec![]));
    crowd.ok("RLOCK r a 600000");
    crowd.ok("RLOCK r a 500000");
    crowd.ok("RLOCK r b 400000");
    crowd.ok("WLOCK w a 700000");
    crowd.ok("RLOCK w a 700000");
    crowd.ok("WLOCK gone a 700000");
    crowd.gives("UNLOCK gone a", 1);
    let _waiter = crowd.waits("WLOCK w b 1000 BLOCK 0");
    // A free lock with a waiter is not held.
    crowd.refused("WLOCK r c 1000 RESERVE 600000");
    crowd.plain("SELECT 1");
    crowd.ok("WLOCK elsewhere a 700000");
    assert_eq!(names(&mut crowd.con, &[]), ["elsewhere"]);
    crowd.plain("SELECT 0");
    wait_until("some time has passed", || int(&crowd.inspect("w")["held"]) > 20);
    let rows = assert_unchanged(&mut crowd.con, |con| all(con, &[]));
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["r", "w"]);
    for (name, mode, holders, waiters) in [("r", "read", 2, 0), ("w", "write", 2, 1)] {
        let (row, seen) = (&rows[name], crowd.inspect(name));
        assert_eq!(text(&row["mode"]), mode);
        assert_eq!([int(&row["holders"]), int(&row["waiters"])], [holders, waiters]);
        assert_eq!(int(&seen["holders_total"]), holders);
        let later = int(&row["ttl"]) - int(&seen["ttl"]);
        assert!((0..30_000).contains(&later), "{later}");
        let later = int(&seen["held"]) - int(&row["held"]);
        assert!((0..30_000).contains(&later), "{later}");
    }
    assert_eq!(int(call!(crowd.con, "PERSIST", "w")), 1);
    assert_eq!(int(&all(&mut crowd.con, &[])["w"]["ttl"]), -1);
}

#[test]
fn it_is_an_array_of_maps_in_every_protocol() {
    let fields = ["key", "mode", "holders", "waiters", "ttl", "held"];
    let server = Server::builder().start();
    let (mut old, mut new) = (server.connection(), server.connection_resp3());
    assert_ok(call!(old, "RWLOCK.WLOCK", "k", "ann", 600_000));
    let rows = list(&list(call!(old, "RWLOCK.LIST", 0))[1]);
    let found: Vec<String> = list(&rows[0]).iter().step_by(2).map(text).collect();
    assert_eq!(found, fields);
    let parts = list(call!(new, "RWLOCK.LIST", 0));
    assert!(matches!(parts[0], Value::BulkString(_)), "{parts:?}");
    let Value::Map(pairs) = &list(&parts[1])[0] else { panic!("no map: {parts:?}") };
    assert_eq!(pairs.iter().map(|(name, _)| text(name)).collect::<Vec<_>>(), fields);
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_reason() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "ann", 600_000));
    for cursor in ["", "-1", "x", "1x", " 1", "+1", "1.0", "18446744073709551616"] {
        refused!(&mut con, "ERR invalid cursor", "RWLOCK.LIST", cursor);
    }
    for (count, error) in [
        ("0", "ERR value is out of range, must be positive"),
        ("-1", "ERR value is out of range, must be positive"),
        ("x", "ERR value is not an integer or out of range"),
        ("", "ERR value is not an integer or out of range"),
        ("1.5", "ERR value is not an integer or out of range"),
    ] {
        refused!(&mut con, error, "RWLOCK.LIST", 0, "COUNT", count);
    }
    for held in ["-1", "x", "", "1.5", "9223372036854775808"] {
        let error = "ERR value is not an integer or out of range";
        refused!(&mut con, error, "RWLOCK.LIST", 0, "HELD", held);
    }
    for (line, near) in [
        ("0 COUNT", "COUNT"),
        ("0 HELD", "HELD"),
        ("0 MATCH", "MATCH"),
        ("0 COUNT 1 count 1", "count"),
        ("0 MATCH a HELD 1 MATCH a", "MATCH"),
        ("0 HELD 1 HELD 1", "HELD"),
        ("0 LIMIT 1", "LIMIT"),
        ("0 0", "0"),
    ] {
        let words = ["RWLOCK.LIST"].into_iter().chain(line.split(' '));
        assert_error(send(&mut con, words), &format!("ERR syntax error near '{near}'"));
    }
    refused!(&mut con, "ERR wrong number of arguments", "RWLOCK.LIST");
    // Any order, any case, the largest numbers.
    let options = ["held", "0", "Count", "9223372036854775807", "match", "k"];
    assert_eq!(names(&mut con, &options), ["k"]);
    assert_eq!(names(&mut con, &["HELD", "9223372036854775807"]), [""; 0]);
    // A cursor of nobody's is good for a page, as with SCAN.
    for cursor in ["1", "77", "4294967297", "18446744073709551615"] {
        page(call!(con, "RWLOCK.LIST", cursor));
    }
}

#[test]
fn pages_are_as_long_as_asked_and_end() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for number in 0..95 {
        assert_ok(call!(con, "RWLOCK.WLOCK", format!("k{number}"), "ann", 600_000));
    }
    for (options, length, pages) in [(&[][..], 10, 10), (&["COUNT", "1"], 1, 95)] {
        let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
        while calls == 0 || cursor != "0" {
            let words = ["RWLOCK.LIST", &cursor];
            let (next, rows) = page(send(&mut con, words.iter().chain(options)));
            assert!(rows.len() <= length && next.bytes().all(|byte| byte.is_ascii_digit()));
            seen.extend(rows.iter().map(|row| text(&row["key"])));
            (cursor, calls) = (next, calls + 1);
        }
        assert_eq!((seen.len(), calls), (95, pages));
    }
    assert_eq!(page(call!(con, "RWLOCK.LIST", 0, "COUNT", 95)).0, "0", "one page is enough");
    // Filters do not make pages longer.
    let (next, rows) = page(call!(con, "RWLOCK.LIST", 0, "MATCH", "none", "COUNT", 50));
    assert!(next != "0" && rows.is_empty());
}

#[test]
fn held_leaves_out_what_is_held_for_less() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.WLOCK", "old", "ann", 600_000));
    wait_until("it gets older", || names(&mut con, &["HELD", "300"]) == ["old"]);
    assert_ok(call!(con, "RWLOCK.WLOCK", "new", "ann", 600_000));
    let found = names(&mut con, &["HELD", "300"]);
    assert!(!found.contains(&"new".to_owned()) || int(&all(&mut con, &[])["new"]["held"]) >= 300);
    assert_eq!(names(&mut con, &["HELD", "0"]), ["new", "old"]);
    wait_until("so does the other", || names(&mut con, &["HELD", "300"]) == ["new", "old"]);
}

/// The server's own SCAN is the judge.
#[test]
fn match_means_what_it_means_for_scan() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let seed = fresh_seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let word = |random: &mut Random, bytes: &[u8], most: u64| -> Vec<u8> {
        (0..random.below(most)).map(|_| random.pick(bytes)).collect()
    };
    for name in ["", "a", "]", "^", "-", "\\", "*", "[", "\u{fc}", "ab-]"] {
        assert_ok(call!(con, "RWLOCK.WLOCK", name, "ann", 600_000));
    }
    for _ in 0..150 {
        let name = word(&mut random, b"aabbc-]^\\*?[\xff\x80\x00", 7);
        call!(con, "RWLOCK.WLOCK", name, "ann", 600_000).expect("granted");
    }
    let sorted = |values: Vec<Value>| values.iter().map(bytes).collect::<BTreeSet<_>>();
    let mut matched = 0;
    for _ in 0..4_000 {
        let pattern = word(&mut random, b"aabc***??[[]]^-\\\xff\x80\x00", 9);
        let scanned = list(call!(con, "SCAN", 0, "COUNT", 10_000, "MATCH", &pattern));
        let rows = page(call!(con, "RWLOCK.LIST", 0, "COUNT", 10_000, "MATCH", &pattern)).1;
        let listed: BTreeSet<_> = rows.iter().map(|row| bytes(&row["key"])).collect();
        assert_eq!(listed, sorted(list(&scanned[1])), "{}", shown(&pattern));
        matched += listed.len();
    }
    assert!(matched > 4_000, "{matched}");
}

#[test]
fn it_names_no_lock_that_the_user_may_not_read() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for lock in ["other", "app:1", "app:2", "{app:3}"] {
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, "ann", 600_000));
    }
    let everything = ["app:1", "app:2", "other", "{app:3}"];
    let script = "return redis.call('RWLOCK.LIST', 0)";
    for (rules, expected) in [
        (&["~app:*"][..], &["app:1", "app:2"][..]),
        (&["%R~app:*"], &["app:1", "app:2"]),
        (&["%W~app:*"], &[]),
        (&["~*"], &everything),
        (&["resetkeys"], &[]),
    ] {
        let rules: Vec<_> = ["+rwlock.list", "+eval"].iter().chain(rules).collect();
        let mut con = user(&server, "ann", &rules);
        assert_eq!(names(&mut con, &[]), expected, "{rules:?}");
        assert_eq!(page(call!(con, "EVAL", script, 0)).1.len(), expected.len(), "{rules:?}");
    }
    drop(user(&server, "none", &["~*", "+@all", "-rwlock.list"]));
}

#[test]
fn keys_decide_what_is_held() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for lock in ["deleted", "overwritten", "lapsed", "changed", "flag"] {
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, "ann", 600_000));
    }
    // In one step, so that the module has had no time to look.
    let script = "redis.call('DEL', 'deleted')
        redis.call('SET', 'overwritten', 1)
        redis.call('PEXPIRE', 'lapsed', 1)
        redis.call('HSET', 'changed', 'mode', 'nothing')
        return redis.call('RWLOCK.LIST', 0)";
    let rows = page(call!(con, "EVAL", script, 0)).1;
    let found: BTreeSet<String> = rows.iter().map(|row| text(&row["key"])).collect();
    assert!(found.is_subset(&["flag", "lapsed"].map(str::to_owned).into()), "{found:?}");
    wait_until("it has lapsed", || names(&mut con, &[]) == ["flag"]);
}

#[test]
fn a_replica_sends_its_clients_to_the_primary() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut con = primary.connection();
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "ann", 600_000));
    wait_synced(&primary, &replica);
    let mut con = replica.connection();
    let error = "ERR a replica does not know the held locks, ask the primary";
    assert_error(call!(con, "RWLOCK.LIST", 0), error);
    let seen = map(call!(con, "RWLOCK.INSPECT", "k"));
    assert_eq!((text(&seen["mode"]).as_str(), int(&seen["held"])), ("write", -1));
    assert_ok(call!(con, "REPLICAOF", "NO", "ONE"));
    wait_until("the sweep has found it", || names(&mut con, &[]) == ["k"]);
    assert_eq!(int(&all(&mut con, &[])["k"]["held"]), -1);
}

#[test]
fn a_cluster_node_lists_its_own() {
    let server = Server::builder().cluster_enabled().start();
    let mut con = server.connection();
    assert_ok(call!(con, "CLUSTER", "ADDSLOTSRANGE", 0, 16_383));
    wait_until("it serves", || text(call!(con, "CLUSTER", "INFO")).contains("cluster_state:ok"));
    for lock in ["a", "{b}:1", "{b}:2"] {
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, "ann", 600_000));
    }
    assert_eq!(names(&mut con, &[]), ["a", "{b}:1", "{b}:2"]);
}
