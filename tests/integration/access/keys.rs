//! How far a right to some locks goes: to their own
//! derived keys, whatever names a user comes up with, and no further.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use crate::access::rights::{all_commands, user};
use support::unchanged::{shown, snapshot};
use support::{
    assert_error, assert_ok, bytes, call, every_command, int, list, map, text, wait_synced,
    wait_until, Client, Crowd, Server,
};

/// A user of every command of the module, on the locks `app:*`.
fn app_user(server: &Server) -> Connection {
    let mut rules = all_commands(server);
    rules.push("~app:*".to_owned());
    user(server, "app", &rules)
}

/// What the keys of a lock start with, by Redisson's rule.
fn prefix(lock: &[u8]) -> Vec<u8> {
    match lock.contains(&b'{') {
        true => lock.to_vec(),
        false => [b"{", lock, b"}"].concat(),
    }
}

/// Whether this is the lock's key, or one that is derived from its name.
fn belongs(key: &[u8], lock: &[u8]) -> bool {
    let Some(rest) = key.strip_prefix(&prefix(lock)[..]) else {
        return key == lock;
    };
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let timeout = digits > 0 && rest[..rest.len() - digits].ends_with(b":rwlock_timeout:");
    key == lock
        || rest == b":wait_write"
        || rest == b":rwlock_fence"
        || (timeout && rest.starts_with(b":"))
}

/// Names that a user of `app:*` may give, and may not.
const LOCKS: [&[u8]; 24] = [
    b"app:1",
    b"app:",
    b"app:{",
    b"app:}",
    b"app:{}",
    b"app:{other}",
    b"app:1}:b",
    b"app:1}:b:{",
    b"app:*",
    b"app:1\0",
    b"app:1\r\n",
    b"app:\xff",
    b"app:{1}:me",
    b"app:1:wait_write",
    b"app:{1}:rwlock_fence",
    b"app:1:me:rwlock_timeout:1",
    b"{app:1}",
    b"{app:1}:b",
    b"{app:1}:wait_write",
    b"{app:1}:me:rwlock_timeout:1",
    b"other",
    b"{other}",
    b"ap",
    b"",
];

const OWNERS: [&[u8]; 14] = [
    b"me",
    b"b:c",
    b"c",
    b":",
    b"}",
    b"}:other",
    b"{",
    b"{other}",
    b"wait_write",
    b"x:rwlock_timeout:1",
    b":rwlock_timeout:1:wait_write",
    b"b:wait_write",
    b"\0",
    b"*",
];

/// What others have: locks near those of the user, and keys that are no locks.
fn others(admin: &mut Connection) -> Vec<&'static [u8]> {
    let locks: [&[u8]; 7] =
        [b"other", b"{other}x", b"{app:1}", b"{app:1}:b", b"{app:", b"{app:1", b"ap"];
    for (lock, owner) in locks.into_iter().zip(["me", "c"].into_iter().cycle()) {
        assert_ok(call!(admin, "RWLOCK.RLOCK", lock, owner, 900_000));
        assert_ok(call!(admin, "RWLOCK.RLOCK", lock, owner, 600_000));
        if lock != b"{app:1}" {
            int(call!(admin, "RWLOCK.WLOCK", lock, "writer", 60_000, "RESERVE", 900_000));
        }
    }
    for key in ["{app:1}", "{app:1}:b", "app", "x"].map(|name| format!("{name}:data")) {
        assert_ok(call!(admin, "SET", key, "of others"));
    }
    int(call!(admin, "HSET", "other:hash", "mode", "read", "me", 1));
    locks.to_vec()
}

/// What does not depend on the time.
fn holders(admin: &mut Connection, lock: &[u8]) -> Value {
    let picture = map(call!(admin, "RWLOCK.INSPECT", lock));
    let holders = list(&picture["holders"]).into_iter().map(|holder| {
        let mut holder = map(&holder);
        holder.remove("ttl");
        Value::Array(holder.into_values().collect())
    });
    Value::Array(holders.chain([picture["mode"].clone()]).collect())
}

#[test]
fn no_name_of_a_lock_or_owner_leads_to_the_keys_of_another_lock() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let mut con = app_user(&server);
    let others = others(&mut admin);
    let of_others: BTreeMap<_, _> =
        others.iter().map(|lock| (*lock, holders(&mut admin, lock))).collect();
    let mut reached = 0;
    for lock in LOCKS {
        for owner in OWNERS {
            for command in every_command::all() {
                let what = format!("{} {} by {}", command.name, shown(lock), owner.escape_ascii());
                let before = snapshot(&mut admin);
                let result = command.call(&mut con, lock, owner);
                let after = snapshot(&mut admin);
                if !lock.starts_with(b"app:") {
                    assert_error(result, "NOPERM");
                    assert_eq!(before, after, "{what}");
                    continue;
                }
                for key in before.keys().chain(after.keys()) {
                    if before.get(key) != after.get(key) {
                        assert!(belongs(key, lock), "{what} changed {}", shown(key));
                        reached += 1;
                    }
                }
                // A timeout key that both could have is still whose it was.
                for (lock, seen) in &of_others {
                    assert_eq!(holders(&mut admin, lock), *seen, "{what}: {}", shown(lock));
                }
            }
            // What the commands left would keep the next owner out.
            for key in snapshot(&mut admin).into_keys().filter(|key| belongs(key, lock)) {
                let value = call!(admin, "GET", &key).map(bytes).unwrap_or_default();
                if lock.starts_with(b"app:") && !others.contains(&&value[..]) {
                    int(call!(admin, "DEL", &key));
                }
            }
        }
    }
    assert!(reached > 1_000, "it did something: {reached} keys changed");
}

/// The one thing that the locks `a` and `{a}` cannot tell apart: see
/// docs/access.md.
#[test]
fn a_right_to_a_lock_is_one_to_the_reservation_of_its_twin() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let mut con = app_user(&server);
    assert_ok(call!(con, "RWLOCK.WLOCK", "app:1", "me", 60_000));
    assert!(int(call!(con, "RWLOCK.WLOCK", "app:1", "you", 60_000, "RESERVE", 60_000)) > 0);
    assert_eq!(text(&map(call!(admin, "RWLOCK.INSPECT", "{app:1}"))["reserved_by"]), "you");
    assert!(int(call!(admin, "RWLOCK.RLOCK", "{app:1}", "third", 60_000)) > 0);
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "app:1")), 1);
    assert_ok(call!(admin, "RWLOCK.RLOCK", "{app:1}", "third", 60_000));
    // Its holds are safe.
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "app:1")), 0);
    assert_eq!(int(call!(admin, "RWLOCK.UNLOCK", "{app:1}", "third")), 1);
}

/// Those of docs/access.md.
#[test]
fn the_documented_patterns_let_a_user_read_the_derived_keys() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let rules = ["%R~app:*", "%R~{app:*}:*", "+get", "+hgetall", "+pttl"];
    let mut con = user(&server, "reader", &rules);
    for lock in ["app:1", "app:{1}"] {
        assert_ok(call!(admin, "RWLOCK.RLOCK", lock, "me", 60_000));
        int(call!(admin, "RWLOCK.WLOCK", lock, "you", 60_000, "RESERVE", 60_000));
        let prefix = String::from_utf8(prefix(lock.as_bytes())).expect("UTF-8");
        assert_eq!(list(call!(con, "HGETALL", lock)).len(), 4);
        let timeout = format!("{prefix}:me:rwlock_timeout:1");
        assert_eq!(text(call!(con, "GET", &timeout)), lock);
        assert!(int(call!(con, "PTTL", timeout)) > 0);
        assert_eq!(text(call!(con, "GET", format!("{prefix}:wait_write"))), "you");
        assert_eq!(call!(con, "GET", format!("{prefix}:rwlock_fence")), Ok(Value::Nil));
        assert_error(call!(con, "RWLOCK.INSPECT", lock), "NOPERM");
    }
    for key in ["other", "{other}:me:rwlock_timeout:1", "{app}:wait_write", "{app:1}"] {
        assert_error(call!(con, "GET", key), "NOPERM");
    }
}

/// The locks that QUEUES names.
fn names(reply: redis::RedisResult<Value>) -> Vec<String> {
    list(reply).iter().map(|row| text(&map(row)["key"])).collect()
}

#[test]
fn queues_names_no_lock_that_the_user_may_not_read() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut clients: Vec<Client> = Vec::new();
    for (lock, waiters) in [("other", 3), ("app:1", 1), ("app:2", 2), ("{app:3}", 4)] {
        crowd.ok(&format!("WLOCK {lock} h 600000"));
        for waiter in 0..waiters {
            clients.push(crowd.waits(&format!("WLOCK {lock} w{waiter} 600000 BLOCK 0")));
        }
    }
    let all = ["{app:3}", "other", "app:2", "app:1"];
    assert_eq!(names(crowd.run("QUEUES")), all);
    let script = "return redis.call('RWLOCK.QUEUES', 'COUNT', ARGV[1])";
    for (rules, expected) in [
        (&["~app:*"][..], &["app:2", "app:1"][..]),
        (&["%R~app:*"], &["app:2", "app:1"]),
        (&["%W~app:*"], &[]),
        (&["~*"], &all),
        (&["resetkeys"], &[]),
        (&["~app:1", "~o*"], &["other", "app:1"]),
    ] {
        let commands = ["+rwlock.queues", "+eval", "+multi", "+exec"];
        let rules: Vec<_> = commands.iter().chain(rules).collect();
        let mut con = user(&server, "ann", &rules);
        assert_eq!(names(call!(con, "RWLOCK.QUEUES")), expected, "{rules:?}");
        // What is hidden does not count.
        let first = &expected[..expected.len().min(1)];
        assert_eq!(names(call!(con, "RWLOCK.QUEUES", "COUNT", 1)), first, "{rules:?}");
        assert_eq!(names(call!(con, "EVAL", script, 0, 1)), first, "{rules:?}");
        assert_ok(call!(con, "MULTI"));
        assert_eq!(text(call!(con, "RWLOCK.QUEUES")), "QUEUED");
        let replies = list(call!(con, "EXEC"));
        assert_eq!(names(Ok(replies[0].clone())), expected, "{rules:?}");
    }
}

#[test]
fn queues_survives_where_there_is_no_user() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    // What comes over this link is nobody's command.
    assert_ok(call!(con, "DEBUG", "REPLICATE", "RWLOCK.QUEUES"));
    assert_ok(call!(con, "SET", "after", 1));
    let mut con = replica.connection();
    wait_until("the replica has gone on", || int(call!(con, "EXISTS", "after")) == 1);
    let calls = &replica.info("commandstats")["cmdstat_rwlock.queues"];
    assert!(calls.starts_with("calls=1,"), "{calls}");
    assert!(calls.contains("failed_calls=0"), "{calls}");
}

#[test]
fn listening_to_a_lock_needs_the_right_to_its_channel() {
    let server = Server::builder().start();
    let mut admin = server.connection();
    let rules = ["~app:*", "+subscribe", "+rwlock.rlock", "+rwlock.unlock"];
    let mut con = user(&server, "ann", &rules);
    assert_error(call!(con, "SUBSCRIBE", "redisson_rwlock:{app:1}"), "NOPERM");
    // The announcement itself needs no right.
    assert_ok(call!(con, "RWLOCK.RLOCK", "app:1", "me", 60_000));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "app:1", "me")), 1);

    let channels = ["&redisson_rwlock:{app:*}", "&redisson_rwlock:app:*"];
    let rules: Vec<_> = rules.into_iter().chain(channels).collect();
    let mut con = user(&server, "ann", &rules);
    assert_error(call!(con, "SUBSCRIBE", "redisson_rwlock:{other}"), "NOPERM");
    assert_error(call!(con, "SUBSCRIBE", "redisson_rwlock:{app}"), "NOPERM");
    let mut listener = con.as_pubsub();
    for (lock, channel) in
        [("app:1", "redisson_rwlock:{app:1}"), ("app:{1}", "redisson_rwlock:app:{1}")]
    {
        listener.subscribe(channel).expect("subscribe");
        assert_ok(call!(admin, "RWLOCK.WLOCK", lock, "me", 60_000));
        assert_eq!(int(call!(admin, "RWLOCK.UNLOCK", lock, "me")), 1);
        let message = listener.get_message().expect("an announcement");
        assert_eq!(message.get_channel_name(), channel);
    }
}
