//! The keys of a lock: what they are called, what they hold,
//! and which names of locks and owners are refused.

use std::collections::BTreeMap;

use redis::Connection;

use support::unchanged::snapshot;
use support::{assert_ok, bytes, call, every_command, int, list, map, text, wait_until, Server};

/// All keys there are.
fn keys(con: &mut Connection) -> Vec<Vec<u8>> {
    snapshot(con).into_keys().collect()
}

fn sorted<const N: usize>(mut names: [Vec<u8>; N]) -> Vec<Vec<u8>> {
    names.sort();
    names.to_vec()
}

fn hash(con: &mut Connection, key: &str) -> BTreeMap<String, String> {
    map(call!(con, "HGETALL", key)).into_iter().map(|(field, value)| (field, text(value))).collect()
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.into_iter().map(|(field, value)| (field.into(), value.into())).collect()
}

fn end(con: &mut Connection, key: impl redis::ToRedisArgs) -> i64 {
    int(call!(con, "PEXPIRETIME", key))
}

fn now(con: &mut Connection) -> i64 {
    let time = list(call!(con, "TIME"));
    let part = |value| text(value).parse::<i64>().expect("a number");
    part(&time[0]) * 1000 + part(&time[1]) / 1000
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn a_read_hold_is_a_count_in_the_hash_and_a_timeout_key_with_its_lease() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let before = now(&mut con);
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 90_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "you", 70_000));
    let after = now(&mut con);

    assert_eq!(hash(&mut con, "k"), fields([("mode", "read"), ("me", "2"), ("you", "1")]));
    let timeouts = [
        ("{k}:me:rwlock_timeout:1", 90_000),
        ("{k}:me:rwlock_timeout:2", 60_000),
        ("{k}:you:rwlock_timeout:1", 70_000),
    ];
    for (timeout, lease) in timeouts {
        assert_eq!(text(call!(con, "GET", timeout)), "k", "the value is the lock's name");
        let end = end(&mut con, timeout);
        assert!((before + lease..=after + lease).contains(&end), "{timeout} ends at {end}");
    }
    assert_eq!(end(&mut con, "k"), end(&mut con, timeouts[0].0), "the latest end of any hold");
    assert_eq!(keys(&mut con).len(), 4);

    // The highest number goes, the numbering stays without gaps.
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 0);
    assert_eq!(hash(&mut con, "k"), fields([("mode", "read"), ("me", "1"), ("you", "1")]));
    assert_eq!(int(call!(con, "EXISTS", timeouts[1].0)), 0);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 0);
    assert_eq!(hash(&mut con, "k"), fields([("mode", "read"), ("you", "1")]));
    assert_eq!(end(&mut con, "k"), end(&mut con, timeouts[2].0));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "you")), 1);
    assert!(keys(&mut con).is_empty());
}

#[test]
fn a_write_hold_is_a_count_in_the_hash_whose_expiry_is_its_lease() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let before = now(&mut con);
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 60_000));
    let after = now(&mut con);
    assert_eq!(hash(&mut con, "k"), fields([("mode", "write"), ("me:write", "1")]));
    assert!((before + 60_000..=after + 60_000).contains(&end(&mut con, "k")));
    assert_eq!(keys(&mut con), [b"k".to_vec()]);

    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 60_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    let both = fields([("mode", "write"), ("me:write", "2"), ("me", "1")]);
    assert_eq!(hash(&mut con, "k"), both);
    assert_eq!(keys(&mut con).len(), 2);
}

#[test]
fn a_reservation_is_a_string_key_that_names_its_owner() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    let before = now(&mut con);
    int(call!(con, "RWLOCK.WLOCK", "k", "you", 60_000, "RESERVE", 5_000));
    let after = now(&mut con);
    assert_eq!(text(call!(con, "GET", "{k}:wait_write")), "you");
    assert!((before + 5_000..=after + 5_000).contains(&end(&mut con, "{k}:wait_write")));
    int(call!(con, "RWLOCK.WLOCK", "k", "you", 60_000, "RESERVE", 9_000));
    assert!(end(&mut con, "{k}:wait_write") > after + 5_000, "refreshed");
    assert_eq!(keys(&mut con).len(), 3, "and no fence key, for nobody used FENCE");
}

#[test]
fn the_keys_and_the_channel_are_named_by_redissons_rule() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut listener = server.connection();
    let rows: [(&[u8], &[u8], &[u8]); 9] = [
        (b"a", b"{a}", b"redisson_rwlock:{a}"),
        (b"{a}", b"{a}", b"redisson_rwlock:{a}"),
        (b"x{a}y", b"x{a}y", b"redisson_rwlock:x{a}y"),
        (b"a{", b"a{", b"redisson_rwlock:a{"),
        (b"{}", b"{}", b"redisson_rwlock:{}"),
        (b"a}", b"{a}}", b"redisson_rwlock:{a}}"),
        (b"", b"{}", b"redisson_rwlock:{}"),
        (b"\0\r\n\xff", b"{\0\r\n\xff}", b"redisson_rwlock:{\0\r\n\xff}"),
        (b"a:b c", b"{a:b c}", b"redisson_rwlock:{a:b c}"),
    ];
    for (lock, prefix, channel) in rows {
        let mut subscription = listener.as_pubsub();
        subscription.subscribe(channel).expect("subscribe");
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, "me", 60_000));
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, "me", 60_000));
        int(call!(con, "RWLOCK.WLOCK", lock, "you", 60_000, "RESERVE", 60_000));
        let expected = sorted([
            lock.to_vec(),
            concat(&[prefix, b":me:rwlock_timeout:1"]),
            concat(&[prefix, b":me:rwlock_timeout:2"]),
            concat(&[prefix, b":wait_write"]),
        ]);
        assert_eq!(keys(&mut con), expected);
        assert_ok(call!(con, "SET", concat(&[prefix, b":rwlock_fence"]), 7));
        let picture = map(call!(con, "RWLOCK.INSPECT", lock));
        assert_eq!(int(&picture["fence"]), 7);

        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "me", "ALL")), 1);
        let message = subscription.get_message().expect("an announcement");
        assert_eq!(message.get_payload_bytes(), b"0");
        assert_eq!(message.get_channel::<Vec<u8>>().expect("bytes"), channel);
        drop(subscription);
        assert_ok(call!(con, "FLUSHALL"));
    }
}

#[test]
fn a_lock_name_that_belongs_to_the_keys_of_another_lock_is_refused() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "a", "b", 60_000));
    let refused: [&[u8]; 10] = [
        b"{a}:b:rwlock_timeout:1",
        b"{a}:wait_write",
        b"{a}:rwlock_fence",
        b":wait_write",
        b":rwlock_fence",
        b":rwlock_timeout:0",
        b"x:rwlock_timeout:00123456789012345678901234567890",
        b"\xff\r\n:wait_write",
        b"{x:rwlock_fence",
        b"x}:rwlock_timeout:7",
    ];
    for name in refused {
        for command in every_command::all() {
            let text = command.refused(&mut con, name, b"me", "ERR");
            assert!(text.contains("name"), "{text}");
        }
    }
    let accepted: [&[u8]; 9] = [
        b"wait_write",
        b"x:wait_write:",
        b"x:Wait_Write",
        b"x:rwlock_timeout:",
        b"x:rwlock_timeout:1a",
        b"x:rwlock_timeout:-1",
        b"x:rwlock_timeout:\xd9\xa1",
        b"rwlock_timeout:1",
        b"x:rwlock_fence ",
    ];
    for name in accepted {
        assert_ok(call!(con, "RWLOCK.WLOCK", name, "me", 60_000));
    }
}

#[test]
fn an_owner_that_would_collide_or_is_too_long_is_refused() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "x", 60_000));
    assert_ok(call!(con, "RWLOCK.WLOCK", "w", "x", 60_000));
    let long = vec![b'x'; 1025];
    let huge = vec![b'x'; 1 << 20];
    let refused: [&[u8]; 8] =
        [b"", b"mode", b":write", b"x:write", b"x:write:write", b"\xff\0:write", &long, &huge];
    for owner in refused {
        for command in every_command::with_owner() {
            for lock in ["k", "w", "free"] {
                let text = command.refused(&mut con, lock.as_bytes(), owner, "ERR");
                assert!(text.contains("owner"), "{text}");
            }
        }
    }
    let accepted: [&[u8]; 12] = [
        &long[..1024],
        b"Mode",
        b"MODE",
        b"mode ",
        b"mod",
        b"write",
        b":Write",
        b"x:write ",
        b"x:write:",
        b"mode:x",
        b"1",
        b"{x}:rwlock_timeout:1",
    ];
    for (number, owner) in accepted.into_iter().enumerate() {
        assert_ok(call!(con, "RWLOCK.RLOCK", "k", owner, 60_000));
        assert_ok(call!(con, "RWLOCK.WLOCK", format!("own{number}"), owner, 60_000));
    }
    let picture = map(call!(con, "RWLOCK.INSPECT", "k"));
    assert_eq!(int(&picture["holders_total"]), 1 + accepted.len() as i64);
}

/// Goes once through all that can be done with a lock of this name by an
/// owner of that name.
fn whole_life(con: &mut Connection, lock: &[u8], owner: &[u8]) {
    let holder = |con: &mut Connection| {
        let picture = map(call!(con, "RWLOCK.INSPECT", lock));
        let holders = list(&picture["holders"]);
        holders.iter().map(|holder| bytes(&map(holder)["owner"])).collect::<Vec<_>>()
    };
    assert_ok(call!(con, "RWLOCK.RLOCK", lock, owner, 60_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", lock, owner, 60_000));
    assert_eq!(bytes(call!(con, "HGET", lock, owner)), b"2");
    assert_eq!(holder(con), [owner]);
    assert_ok(call!(con, "RWLOCK.UPGRADE", lock, owner, 60_000));
    assert_ok(call!(con, "RWLOCK.RENEW", lock, owner, 90_000));
    assert_eq!(holder(con), [owner, owner]);
    assert_ok(call!(con, "RWLOCK.DOWNGRADE", lock, owner, 60_000));
    int(call!(con, "RWLOCK.WLOCK", lock, b"\xfeother", 60_000, "RESERVE", 60_000));
    let picture = map(call!(con, "RWLOCK.INSPECT", lock));
    assert_eq!(bytes(&picture["reserved_by"]), b"\xfeother");
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, owner)), 0);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, owner, "ALL")), 1);
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", lock)), 1);
    assert_ok(call!(con, "RWLOCK.WLOCK", lock, owner, 60_000));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, owner)), 1);
    assert!(keys(con).is_empty(), "nothing is left of {:?}", keys(con));
}

#[test]
fn names_may_be_any_bytes_and_of_any_length() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let every_byte: Vec<u8> = (0..=255).collect();
    let huge = vec![b'L'; 1 << 20];
    let long = vec![b'o'; 1024];
    let names: [(&[u8], &[u8]); 8] = [
        (&every_byte, &every_byte),
        (b"", b"\0"),
        (b"\0", b"\r\n"),
        (b"\r\n+OK\r\n", b"\xc3\x28"),
        (b"%s%n", b"%s%n"),
        (b"1", b"1"),
        (b"read", b"write"),
        (&huge, &long),
    ];
    for (lock, owner) in names {
        whole_life(&mut con, lock, owner);
    }
    for byte in 0..=u8::MAX {
        assert_ok(call!(con, "RWLOCK.RLOCK", &[byte], &[byte], 60_000));
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", &[byte], &[byte])), 1);
    }
    assert!(keys(&mut con).is_empty());
}

#[test]
fn a_lock_belongs_to_its_database() {
    let server = Server::builder().start();
    let (mut zero, mut one) = (server.connection(), server.connection());
    assert_ok(call!(one, "SELECT", 1));
    assert_ok(call!(zero, "RWLOCK.RLOCK", "k", "me", 60_000));
    assert_ok(call!(one, "RWLOCK.WLOCK", "k", "you", 60_000));
    int(call!(one, "RWLOCK.WLOCK", "k", "me", 60_000, "RESERVE", 60_000));
    assert_eq!(text(&map(call!(zero, "RWLOCK.INSPECT", "k"))["mode"]), "read");
    assert_eq!(text(&map(call!(one, "RWLOCK.INSPECT", "k"))["mode"]), "write");

    // A reservation in one does not hold up the other.
    assert_ok(call!(zero, "RWLOCK.RLOCK", "k", "third", 60_000));
    let other = snapshot(&mut one);
    assert_eq!(int(call!(zero, "RWLOCK.FORCEUNLOCK", "k")), 1);
    assert!(keys(&mut zero).is_empty());
    assert_eq!(snapshot(&mut one), other);
    assert_eq!(int(call!(one, "RWLOCK.UNLOCK", "k", "you")), 1);
}

#[test]
fn a_hold_that_is_cut_short_by_hand_goes_at_once_whatever_its_lock_is_called() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let locks = ["a", "{a}", "a:b", "{a:b}", "a{b", "a}b", "", "{a}:b:c:d:e:f", "a:b:c:d:e:f:g"];
    for (lock, owner) in locks.into_iter().zip(["me", "m:e", "m:e:1"].into_iter().cycle()) {
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, owner, 600_000));
        let tagged = if lock.contains('{') { lock.to_owned() } else { format!("{{{lock}}}") };
        let timeout = format!("{tagged}:{owner}:rwlock_timeout:1");
        assert_eq!(int(call!(con, "PEXPIRE", timeout, 1)), 1);
        // The hash would live on for long.
        wait_until("its lock is gone", || int(call!(con, "EXISTS", lock)) == 0);
    }
}
