//! What RWLOCK.INSPECT tells (SPEC section 3).

use std::collections::{BTreeMap, BTreeSet};

use redis::{cmd, Connection, Value};

use support::unchanged::assert_unchanged;
use support::{assert_ok, bytes, call, int, list, map, refused, send, text, wait_until, Server};

type Picture = BTreeMap<String, Value>;

const FIELDS: [&str; 9] = [
    "mode",
    "ttl",
    "held",
    "holders",
    "holders_total",
    "waiters",
    "waiters_total",
    "reserved_by",
    "fence",
];

/// INSPECT, which changes nothing.
#[track_caller]
fn inspect(con: &mut Connection, lock: &str) -> Picture {
    assert_unchanged(con, |con| map(call!(con, "RWLOCK.INSPECT", lock)))
}

fn holders(picture: &Picture) -> Vec<Picture> {
    let mut holders: Vec<Picture> = list(&picture["holders"]).iter().map(map).collect();
    holders.sort_by_key(|holder| (bytes(&holder["owner"]), text(&holder["kind"])));
    holders
}

/// Owner, kind and number of holds of each holder.
fn held(picture: &Picture) -> Vec<(String, String, i64)> {
    let row =
        |holder: &Picture| (text(&holder["owner"]), text(&holder["kind"]), int(&holder["holds"]));
    holders(picture).iter().map(row).collect()
}

fn row(owner: &str, kind: &str, holds: i64) -> (String, String, i64) {
    (owner.into(), kind.into(), holds)
}

/// Whether it is a little less than `lease`.
#[track_caller]
fn assert_left(ttl: &Value, lease: i64) {
    let left = int(ttl);
    assert!((lease - 30_000..=lease).contains(&left), "{left} of {lease} ms left");
}

#[test]
fn a_free_lock_is_free_and_all_else_is_empty() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let picture = inspect(&mut con, "k");
    let names: BTreeSet<&str> = picture.keys().map(String::as_str).collect();
    assert_eq!(names, FIELDS.into());
    assert_eq!(text(&picture["mode"]), "free");
    assert_eq!(int(&picture["ttl"]), -2);
    assert_eq!(int(&picture["held"]), 0);
    assert!(list(&picture["holders"]).is_empty() && list(&picture["waiters"]).is_empty());
    assert_eq!(int(&picture["holders_total"]), 0);
    assert_eq!(int(&picture["waiters_total"]), 0);
    assert_eq!(picture["reserved_by"], Value::Nil);
    assert_eq!(int(&picture["fence"]), 0);
}

#[test]
fn readers_and_writers_are_shown_with_their_holds_and_leases() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 900_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 100_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "bob", 500_000));
    let picture = inspect(&mut con, "k");
    assert_eq!(text(&picture["mode"]), "read");
    assert_left(&picture["ttl"], 900_000);
    assert_eq!(held(&picture), [row("ann", "read", 2), row("bob", "read", 1)]);
    assert_eq!(int(&picture["holders_total"]), 2);
    let found = holders(&picture);
    assert_left(&found[0]["ttl"], 900_000);
    assert_left(&found[1]["ttl"], 500_000);
    let names: Vec<&str> = found[0].keys().map(String::as_str).collect();
    assert_eq!(names, ["holds", "kind", "name", "owner", "session", "ttl"]);
    assert_eq!(int(&found[0]["session"]), 0);

    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "bob")), 0);
    assert_ok(call!(con, "RWLOCK.UPGRADE", "k", "ann", 1_900_000));
    let picture = inspect(&mut con, "k");
    assert_eq!(text(&picture["mode"]), "write");
    assert_left(&picture["ttl"], 1_900_000);
    assert_eq!(held(&picture), [row("ann", "read", 2), row("ann", "write", 1)]);
    let found = holders(&picture);
    assert_left(&found[0]["ttl"], 900_000);
    assert_left(&found[1]["ttl"], 1_900_000);

    // Without expiry.
    assert_eq!(int(call!(con, "PERSIST", "k")), 1);
    let picture = inspect(&mut con, "k");
    assert_eq!(int(&picture["ttl"]), -1);
    assert_eq!(int(&holders(&picture)[1]["ttl"]), -1);
    assert_left(&holders(&picture)[0]["ttl"], 900_000);
    assert_eq!(int(call!(con, "PERSIST", "{k}:ann:rwlock_timeout:1")), 1);
    assert_eq!(int(&holders(&inspect(&mut con, "k"))[0]["ttl"]), -1);
}

#[test]
fn a_reservation_and_the_last_token_are_shown_whether_the_lock_is_held_or_not() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 600_000));
    int(call!(con, "RWLOCK.WLOCK", "k", "bob", 600_000, "RESERVE", 600_000));
    assert_ok(call!(con, "SET", "{k}:rwlock_fence", "1760000000000001"));
    for mode in ["read", "free"] {
        let picture = inspect(&mut con, "k");
        assert_eq!(text(&picture["mode"]), mode);
        assert_eq!(text(&picture["reserved_by"]), "bob");
        assert_eq!(int(&picture["fence"]), 1_760_000_000_000_001);
        drop(call!(con, "RWLOCK.UNLOCK", "k", "ann"));
    }
    assert_eq!(int(&inspect(&mut con, "k")["ttl"]), -2, "a reservation is no hold");
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "k")), 1);
    let picture = inspect(&mut con, "k");
    assert_eq!(picture["reserved_by"], Value::Nil);
    assert_eq!(int(&picture["fence"]), 1_760_000_000_000_001, "the fence key stays");
}

/// INSPECT behind other commands and before HLEN, all in one transaction: what
/// lapses in it is not yet cleaned up.
fn inspect_after(con: &mut Connection, commands: &[&str]) -> (Picture, i64) {
    assert_ok(call!(con, "MULTI"));
    for command in commands.iter().chain(&["RWLOCK.INSPECT k", "HLEN k"]) {
        assert_eq!(text(send(con, command.split(' '))), "QUEUED");
    }
    let mut replies = list(call!(con, "EXEC"));
    let fields = int(replies.pop().expect("a reply to HLEN"));
    (map(replies.pop().expect("a reply to INSPECT")), fields)
}

#[test]
fn lapsed_holds_are_not_shown_and_not_removed() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for owner in ["ann", "ann", "ann", "bob"] {
        assert_ok(call!(con, "RWLOCK.RLOCK", "k", owner, 600_000));
    }
    let (picture, fields) = inspect_after(
        &mut con,
        &[
            "DEL {k}:ann:rwlock_timeout:2 {k}:bob:rwlock_timeout:1",
            // Above the count it means nothing.
            "SET {k}:ann:rwlock_timeout:4 k PX 900000",
            // A write hold of a lock in read mode is none.
            "HSET k bob:write 1",
        ],
    );
    assert_eq!(held(&picture), [row("ann", "read", 2)]);
    assert_eq!(int(&picture["holders_total"]), 1);
    assert_left(&holders(&picture)[0]["ttl"], 600_000);
    assert_eq!(fields, 4, "the hash is as it was");

    wait_until("the lapsed holds are gone", || int(call!(con, "HLEN", "k")) == 2);
    let lapse = "DEL {k}:ann:rwlock_timeout:1 {k}:ann:rwlock_timeout:2";
    let (picture, fields) = inspect_after(&mut con, &[lapse]);
    assert_eq!(text(&picture["mode"]), "free");
    assert_eq!(int(&picture["ttl"]), -2);
    assert_eq!(int(&picture["holders_total"]), 0);
    assert_eq!(fields, 2, "the hash is as it was");
    wait_until("the lock is gone", || int(call!(con, "EXISTS", "k")) == 0);
}

#[test]
fn while_writes_are_paused_lapsed_holds_are_not_shown_and_not_removed() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 600_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "bob", 600_000));
    assert_ok(call!(con, "RWLOCK.WLOCK", "short", "ann", 600_000));
    assert_ok(call!(con, "MULTI"));
    for key in ["{k}:ann:rwlock_timeout:1", "short"] {
        assert_eq!(text(call!(con, "PEXPIRE", key, 20)), "QUEUED");
    }
    assert_eq!(text(call!(con, "CLIENT", "PAUSE", 600_000, "WRITE")), "QUEUED");
    list(call!(con, "EXEC"));
    let mut picture = |lock| map(call!(con, "RWLOCK.INSPECT", lock));
    wait_until("the leases are over", || {
        held(&picture("k")) == [row("bob", "read", 1)] && text(&picture("short")["mode"]) == "free"
    });
    assert_eq!(int(call!(con, "HLEN", "k")), 3, "the hash is as it was");
    assert_eq!(int(call!(con, "DBSIZE")), 4, "and all keys are there");
    assert_ok(call!(con, "CLIENT", "UNPAUSE"));
    wait_until("the lapsed holds are gone", || {
        int(call!(con, "HLEN", "k")) == 2 && int(call!(con, "DBSIZE")) == 2
    });
}

#[test]
fn who_waits_is_shown_in_the_order_of_service() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 600_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "bob", 600_000, "SESSION"));
    let waits: [&[&str]; 4] = [
        &["RWLOCK.WLOCK", "k", "dan", "60000", "BLOCK", "0"],
        &["RWLOCK.RLOCK", "k", "eve", "60000", "BLOCK", "500000"],
        &["RWLOCK.WLOCK", "k", "fay", "60000", "BLOCK", "0", "SESSION"],
        &["RWLOCK.UPGRADE", "k", "ann", "60000", "BLOCK", "400000"],
    ];
    let mut clients = Vec::new();
    let mut numbers = Vec::new();
    for (words, before) in waits.into_iter().zip(0..) {
        let mut client = server.connection();
        numbers.push(int(call!(client, "CLIENT", "ID")));
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        client.send_packed_command(&command.get_packed_command()).expect("send it");
        clients.push(client);
        wait_until("it waits", || int(&inspect(&mut con, "k")["waiters_total"]) == before + 1);
    }
    let picture = inspect(&mut con, "k");
    let waiters: Vec<Picture> = list(&picture["waiters"]).iter().map(map).collect();
    let rows: Vec<(String, String, i64)> = waiters
        .iter()
        .map(|waiter| (text(&waiter["owner"]), text(&waiter["kind"]), int(&waiter["client"])))
        .collect();
    // An upgrade goes first, whoever came before.
    let expected =
        [("ann", "upgrade", 3), ("dan", "write", 0), ("eve", "read", 1), ("fay", "write", 2)]
            .map(|(owner, kind, at)| (owner.to_owned(), kind.to_owned(), numbers[at]));
    assert_eq!(rows, expected);
    let names: Vec<&str> = waiters[0].keys().map(String::as_str).collect();
    assert_eq!(names, ["client", "kind", "locks", "name", "owner", "timeout", "waited"]);
    let times = |name: &str| -> Vec<i64> { waiters.iter().map(|by| int(&by[name])).collect() };
    assert_left(&waiters[0]["timeout"], 400_000);
    assert_left(&waiters[2]["timeout"], 500_000);
    assert_eq!([times("timeout")[1], times("timeout")[3]], [0, 0], "without end");
    let waited = times("waited");
    let in_order_of_arrival = [waited[1], waited[2], waited[3], waited[0], 0];
    assert!(in_order_of_arrival.is_sorted_by(|one, next| one >= next), "{waited:?}");
    let of_holders = holders(&picture);
    let sessions: Vec<i64> = of_holders.iter().map(|holder| int(&holder["session"])).collect();
    assert_eq!(sessions, [0, int(call!(con, "CLIENT", "ID"))]);
    // COUNT is for both lists, and the totals are of all.
    let short = map(call!(con, "RWLOCK.INSPECT", "k", "COUNT", 1));
    let listed = list(&short["waiters"]);
    assert_eq!((listed.len(), text(&map(&listed[0])["owner"]).as_str()), (1, "ann"));
    assert_eq!([int(&short["waiters_total"]), int(&short["holders_total"])], [4, 2]);
}

#[test]
fn no_more_than_count_holders_are_listed_and_all_are_counted() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // Few enough for a compact hash, and too many.
    for total in [150_usize, 1500] {
        for number in 0..total {
            assert_ok(call!(con, "RWLOCK.RLOCK", "k", format!("owner{number}"), 600_000));
        }
        let listed = |picture: &Picture| -> BTreeSet<Vec<u8>> {
            assert_eq!(int(&picture["holders_total"]), total as i64);
            list(&picture["holders"]).iter().map(|holder| bytes(&map(holder)["owner"])).collect()
        };
        assert_eq!(listed(&inspect(&mut con, "k")).len(), 100, "the default");
        for count in [1, 2, 99, 101, total - 1, total, total + 1, i64::MAX as usize] {
            let picture = map(call!(con, "RWLOCK.INSPECT", "k", "COUNT", count));
            assert_eq!(listed(&picture).len(), count.min(total), "COUNT {count}");
        }
        assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "k")), 1);
    }
}

#[test]
fn a_count_that_is_no_positive_integer_is_an_error() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "ann", 600_000));
    let bad = ["0", "-1", "x", "", " ", "1.5", "+1", "01", "1 ", "9223372036854775808"];
    for count in bad {
        let error = refused!(&mut con, "ERR value is", "RWLOCK.INSPECT", "k", "COUNT", count);
        assert!(error.contains("out of range"), "COUNT {count:?}: {error}");
    }
    refused!(&mut con, "ERR syntax error", "RWLOCK.INSPECT", "k", "COUNT");
    refused!(&mut con, "ERR syntax error", "RWLOCK.INSPECT", "k", "COUNT", 1, "COUNT", 1);
    refused!(&mut con, "ERR syntax error", "RWLOCK.INSPECT", "k", 1);
}

#[test]
fn it_is_a_map_where_the_protocol_has_maps_and_a_flat_array_else() {
    let server = Server::builder().start();
    let (mut old, mut new) = (server.connection(), server.connection_resp3());
    assert_ok(call!(old, "RWLOCK.RLOCK", "k", "ann", 600_000));
    let flat = call!(old, "RWLOCK.INSPECT", "k").expect("a reply");
    let Value::Array(items) = &flat else { panic!("not flat: {flat:?}") };
    assert_eq!(items.len(), 2 * FIELDS.len());
    let names: Vec<String> = items.iter().step_by(2).map(text).collect();
    assert_eq!(names, FIELDS);
    assert!(matches!(list(&map(&flat)["holders"])[0], Value::Array(_)));

    let real = call!(new, "RWLOCK.INSPECT", "k").expect("a reply");
    let Value::Map(pairs) = &real else { panic!("no map: {real:?}") };
    let names: Vec<String> = pairs.iter().map(|(name, _)| text(name)).collect();
    assert_eq!(names, FIELDS);
    let real = map(real);
    assert!(matches!(list(&real["holders"])[0], Value::Map(_)));
    assert_eq!(real["reserved_by"], Value::Nil);
    assert_eq!(held(&real), held(&map(flat)));
}
