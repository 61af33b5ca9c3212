//! Locks that share the name of a timeout key: whose it is
//! tells its value, and the other lock leaves it alone.

use redis::Connection;

use support::unchanged::{assert_unchanged, snapshot};
use support::{assert_error, assert_ok, call, error_text, int, list, map, refused, text, Server};

/// Two locks, each with the owner and the shared timeout key.
const PAIRS: [[&str; 5]; 4] = [
    ["a", "me", "{a}", "me", "{a}:me:rwlock_timeout:1"],
    ["{a}", "me", "a", "me", "{a}:me:rwlock_timeout:1"],
    ["a", "b:c", "{a}:b", "c", "{a}:b:c:rwlock_timeout:1"],
    ["{a}:b", "c", "a", "b:c", "{a}:b:c:rwlock_timeout:1"],
];

fn mode(con: &mut Connection, lock: &str) -> String {
    text(&map(call!(con, "RWLOCK.INSPECT", lock))["mode"])
}

/// A lock that counts one read hold of `owner`, as a foreign hand or a bug
/// elsewhere could leave it, without the timeout key.
fn claim(con: &mut Connection, lock: &str, owner: &str) {
    int(call!(con, "DEL", lock));
    assert_eq!(int(call!(con, "HSET", lock, "mode", "read", owner, 1)), 2);
    assert_eq!(int(call!(con, "PEXPIRE", lock, 60_000)), 1);
}

#[test]
fn an_acquisition_that_needs_another_locks_timeout_key_names_that_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for [held, holder, lock, owner, timeout] in PAIRS {
        assert_ok(call!(con, "RWLOCK.RLOCK", held, holder, 60_000));
        assert_eq!(text(call!(con, "GET", timeout)), held);
        let clash = format!("ERR key clash with lock {held}");
        assert_eq!(refused!(&mut con, "ERR", "RWLOCK.RLOCK", lock, owner, 60_000), clash);
        assert_eq!(refused!(&mut con, "ERR", "RWLOCK.RLOCK", lock, owner, 60_000, "ONCE"), clash);

        // Also where the lock is there already.
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, "third", 60_000));
        assert_eq!(refused!(&mut con, "ERR", "RWLOCK.RLOCK", lock, owner, 60_000), clash);
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "third")), 1);

        // A write hold needs no timeout key, until it becomes a read hold.
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, owner, 60_000));
        assert_eq!(refused!(&mut con, "ERR", "RWLOCK.DOWNGRADE", lock, owner, 60_000), clash);
        assert_eq!(refused!(&mut con, "ERR", "RWLOCK.RLOCK", lock, owner, 60_000), clash);
        assert_eq!(mode(&mut con, lock), "write");
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, owner)), 1);

        // Once the other lock needs it no more, all is well.
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", held, holder)), 1);
        assert_ok(call!(con, "RWLOCK.RLOCK", lock, owner, 60_000));
        assert_eq!(text(call!(con, "GET", timeout)), lock);
        assert_ok(call!(con, "FLUSHALL"));
    }
}

#[test]
fn only_the_number_that_is_needed_next_clashes() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "SET", "{a}:me:rwlock_timeout:3", "a", "PX", 60_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "{a}", "me", 60_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "{a}", "me", 60_000));
    let clash = "ERR key clash with lock a";
    assert_eq!(refused!(&mut con, clash, "RWLOCK.RLOCK", "{a}", "me", 60_000), clash);
    assert_ok(call!(con, "RWLOCK.RLOCK", "{a}", "me", 90_000, "ONCE"));
    assert_ok(call!(con, "RWLOCK.RENEW", "{a}", "me", 90_000));
    assert_ok(call!(con, "RWLOCK.UPGRADE", "{a}", "me", 90_000));
    assert_ok(call!(con, "RWLOCK.DOWNGRADE", "{a}", "me", 90_000));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "{a}", "me")), 0);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "{a}", "me")), 1);
    let left: Vec<_> = snapshot(&mut con).into_keys().collect();
    assert_eq!(left, [b"{a}:me:rwlock_timeout:3"]);
}

#[test]
fn a_timeout_key_of_another_lock_is_no_live_hold_and_stays() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for [held, holder, lock, owner, timeout] in PAIRS {
        assert_ok(call!(con, "RWLOCK.RLOCK", held, holder, 60_000));
        let of_holder = |con: &mut Connection| {
            let all = snapshot(con);
            (all[held.as_bytes()].clone(), all[timeout.as_bytes()].clone())
        };
        let before = of_holder(&mut con);

        claim(&mut con, lock, owner);
        let picture = assert_unchanged(&mut con, |con| map(call!(con, "RWLOCK.INSPECT", lock)));
        assert_eq!(text(&picture["mode"]), "free");
        assert!(list(&picture["holders"]).is_empty());

        for arguments in [&["UNLOCK"][..], &["UNLOCK", "ALL"], &["RENEW", "90000"]] {
            claim(&mut con, lock, owner);
            let name = format!("RWLOCK.{}", arguments[0]);
            let result = match arguments.get(1) {
                Some(word) => call!(con, name, lock, owner, word),
                None => call!(con, name, lock, owner),
            };
            assert_error(result, "NOTHELD");
            assert_eq!(of_holder(&mut con), before, "{arguments:?} on {lock}");
            assert_eq!(int(call!(con, "EXISTS", lock)), 0, "what has lapsed is removed");
        }
        claim(&mut con, lock, owner);
        assert_error(call!(con, "RWLOCK.UPGRADE", lock, owner, 90_000), "NOTHELD");

        claim(&mut con, lock, owner);
        assert_error(call!(con, "RWLOCK.RLOCK", lock, owner, 60_000), "ERR key clash with lock");
        assert_eq!(of_holder(&mut con), before);
        claim(&mut con, lock, owner);
        int(call!(con, "RWLOCK.FORCEUNLOCK", lock));
        assert_eq!(of_holder(&mut con), before);
        claim(&mut con, lock, owner);
        assert_ok(call!(con, "RWLOCK.WLOCK", lock, "third", 60_000));
        assert_eq!(of_holder(&mut con), before);
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", lock, "third")), 1);
        assert_eq!(int(call!(con, "RWLOCK.UNLOCK", held, holder)), 1);
        assert!(snapshot(&mut con).is_empty());
    }
}

#[test]
fn renumbering_never_writes_over_another_locks_timeout_key() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let timeout = |number: u32| format!("{{a}}:me:rwlock_timeout:{number}");
    for _ in 0..4 {
        assert_ok(call!(con, "RWLOCK.RLOCK", "{a}", "me", 60_000));
    }
    // The second is another lock's now, and the first lapses: what is above
    // has to move down past it.
    assert_ok(call!(con, "SET", timeout(2), "a", "PX", 90_000));
    let foreign = snapshot(&mut con)[timeout(2).as_bytes()].clone();
    assert_eq!(int(call!(con, "DEL", timeout(1))), 1);
    let foreign_now = |con: &mut Connection| snapshot(con)[timeout(2).as_bytes()].clone();

    assert_ok(call!(con, "RWLOCK.RENEW", "{a}", "me", 70_000));
    assert_eq!(foreign_now(&mut con), foreign);
    let holder = |con: &mut Connection| {
        let picture = map(call!(con, "RWLOCK.INSPECT", "{a}"));
        int(&map(&list(&picture["holders"])[0])["holds"])
    };
    assert_eq!(holder(&mut con), 2);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "{a}", "me")), 0);
    assert_eq!(holder(&mut con), 1);
    assert_eq!(foreign_now(&mut con), foreign);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "{a}", "me")), 1);
    assert_eq!(foreign_now(&mut con), foreign);
    assert_eq!(snapshot(&mut con).len(), 1, "nothing else is left");
}

#[test]
fn a_timeout_key_of_redisson_is_ours() {
    let server = Server::builder().start();
    let mut con = server.connection();
    claim(&mut con, "k", "me");
    assert_ok(call!(con, "SET", "{k}:me:rwlock_timeout:1", 1, "PX", 60_000));
    assert_eq!(mode(&mut con, "k"), "read");
    assert!(int(call!(con, "RWLOCK.WLOCK", "k", "you", 60_000)) > 0, "it is held");
    assert_ok(call!(con, "RWLOCK.RENEW", "k", "me", 90_000));
    assert!(int(call!(con, "PTTL", "{k}:me:rwlock_timeout:1")) > 60_000);
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    assert_eq!(text(call!(con, "HGET", "k", "me")), "2");
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 0);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 1);
    assert!(snapshot(&mut con).is_empty());

    // One that is left over is written over.
    assert_ok(call!(con, "SET", "{k}:me:rwlock_timeout:1", 1, "PX", 90_000));
    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    assert_eq!(text(call!(con, "GET", "{k}:me:rwlock_timeout:1")), "k");
    assert!(int(call!(con, "PTTL", "{k}:me:rwlock_timeout:1")) <= 60_000);
}

#[test]
fn a_clash_with_a_lock_of_any_name_is_one_line_and_leaves_the_connection_in_step() {
    let server = Server::builder().start();
    let huge = vec![b'L'; 1 << 20];
    let every_byte: Vec<u8> = (0..=255).collect();
    let names: [&[u8]; 8] = [
        b"x\r\n+OK\r\n:1\r\n",
        b"x\0y",
        b"\xff\xfe\xc3(",
        b"%s%n%d",
        b"",
        "ünïcödé".as_bytes(),
        &every_byte,
        &huge,
    ];
    for mut con in [server.connection(), server.connection_resp3()] {
        assert_ok(call!(con, "FLUSHALL"));
        for name in names {
            assert_ok(call!(con, "SET", "{k}:me:rwlock_timeout:1", name, "PX", 60_000));
            refused!(&mut con, "ERR key clash with lock", "RWLOCK.RLOCK", "k", "me", 60_000);
            let script = "return redis.call('RWLOCK.RLOCK', KEYS[1], ARGV[1], 60000)";
            let result = assert_unchanged(&mut con, |con| {
                call!(con, "EVAL", script, 1, "k", "me").expect_err("a clash")
            });
            assert!(error_text(&result).starts_with("ERR key clash with lock"), "{result:?}");
            assert_ok(call!(con, "MULTI"));
            assert_eq!(text(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000)), "QUEUED");
            assert_eq!(text(call!(con, "PING")), "QUEUED");
            let results = list(call!(con, "EXEC"));
            assert_eq!(text(&results[1]), "PONG");
        }
        let name = "ünïcödé";
        assert_ok(call!(con, "SET", "{k}:me:rwlock_timeout:1", name, "PX", 60_000));
        let error = assert_error(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000), "ERR");
        assert_eq!(error, format!("ERR key clash with lock {name}"));
    }
}
