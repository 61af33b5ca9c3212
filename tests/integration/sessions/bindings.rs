//! A binding names one hold of one connection: whatever commands and scripts do to
//! the owner's other holds, it stays with this one and ends with it.

use redis::Connection;

use crate::sessions::{
    client_id, close, close_last, holders, hours, ok, unlock, FOUR, HOUR, THREE, TWO,
};
use support::observe::run;
use support::{assert_ok, call, int, wait_until, Server};

fn held(kind: &str, holds: i64, session: i64) -> [(String, String, i64, i64); 1] {
    [("a".to_owned(), kind.to_owned(), holds, session)]
}

/// What a Redisson client's scripts do.
fn script(con: &mut Connection, lines: &[&str]) {
    let call = |line: &&str| {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        format!("redis.call({})", words.join(", "))
    };
    let text = lines.iter().map(call).collect::<Vec<_>>().join("; ");
    call!(con, "EVAL", text, 0).expect("it runs");
}

#[test]
fn once_means_the_callers_own_read_hold_and_moves_nothing() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    ok(&mut one, &format!("RLOCK lock a {HOUR} SESSION"));
    ok(&mut two, &format!("RLOCK lock a {TWO} SESSION"));
    ok(&mut one, &format!("RLOCK lock a {FOUR} ONCE SESSION"));
    // Its own is the one that is lengthened.
    assert_eq!(hours(&mut watch, "lock", "a"), [4, 2]);
    // Without SESSION it is the highest.
    ok(&mut one, &format!("RLOCK lock a {THREE} ONCE"));
    assert_eq!(hours(&mut watch, "lock", "a"), [4, 3]);
    close(one, &mut watch);
    wait_until("one's hold is given back", || hours(&mut watch, "lock", "a") == [3]);
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, client_id(&mut two)));
    // Who has none takes over the binding of the highest.
    let mut three = server.connection();
    ok(&mut three, &format!("RLOCK lock a {FOUR} ONCE SESSION"));
    close(two, &mut watch);
    assert_eq!(hours(&mut watch, "lock", "a"), [4]);
    close_last(three, &mut watch);
}

#[test]
fn once_leaves_the_bindings_of_write_holds_alone_where_the_caller_has_one() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    ok(&mut one, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut two, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut two, &format!("WLOCK lock a {HOUR} ONCE SESSION"));
    close(two, &mut watch);
    let first = client_id(&mut one);
    wait_until("two's hold is given back", || holders(&mut watch, "lock")[0].2 == 1);
    assert_eq!(holders(&mut watch, "lock"), held("write", 1, first));
    close_last(one, &mut watch);
}

#[test]
fn downgrade_keeps_the_binding_of_who_downgrades() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    ok(&mut one, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut two, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut two, &format!("DOWNGRADE lock a {HOUR}"));
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, client_id(&mut two)));
    close(one, &mut watch);
    assert_eq!(holders(&mut watch, "lock").len(), 1);
    close_last(two, &mut watch);

    // Who downgrades a plain hold keeps a plain hold.
    let mut one = server.connection();
    ok(&mut one, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut watch, &format!("WLOCK lock a {HOUR}"));
    ok(&mut watch, &format!("DOWNGRADE lock a {HOUR}"));
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, 0));
    close(one, &mut watch);
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, 0));
    assert_eq!(unlock(&mut watch, "lock a"), 1);

    // Another's is what is left where there is no other.
    let mut one = server.connection();
    ok(&mut one, &format!("WLOCK lock a {HOUR} SESSION"));
    ok(&mut watch, &format!("DOWNGRADE lock a {HOUR}"));
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, client_id(&mut one)));
    close_last(one, &mut watch);
}

#[test]
fn downgrade_binds_no_read_hold_that_was_there_before() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut one = server.connection();
    ok(&mut watch, &format!("RLOCK lock a {TWO}"));
    ok(&mut one, &format!("UPGRADE lock a {HOUR} SESSION"));
    ok(&mut one, &format!("DOWNGRADE lock a {HOUR}"));
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, 0));
    close(one, &mut watch);
    assert_eq!(hours(&mut watch, "lock", "a"), [2]);
}

/// A field that is not of the lock's mode is debris, and tells nothing of the reads.
#[test]
fn a_stale_write_count_ends_no_binding_of_a_read_hold() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut one = server.connection();
    ok(&mut one, &format!("RLOCK lock a {HOUR} SESSION"));
    assert_eq!(int(run(&mut watch, "HSET lock a:write 1")), 1);
    ok(&mut watch, &format!("RLOCK lock b {HOUR}"));
    assert_eq!(unlock(&mut watch, "lock b"), 0);
    assert_eq!(holders(&mut watch, "lock"), held("read", 1, client_id(&mut one)));
    close_last(one, &mut watch);
}

/// Whoever met the lapse: a command that only looks, or nobody.
#[test]
fn a_binding_ends_when_its_hold_lapses_though_a_script_takes_the_lock_at_once() {
    for look in ["RWLOCK.INSPECT lock", "RWLOCK.RENEW lock b 1000", "RWLOCK.QUEUES", "PING"] {
        let server = Server::builder().start();
        let mut watch = server.connection();
        let mut one = server.connection();
        ok(&mut one, "WLOCK lock a 300 SESSION");
        let takes = "redis.call('DEL', KEYS[1]); \
             redis.call('HSET', KEYS[1], 'mode', 'write', 'a:write', 1); \
             redis.call('PEXPIRE', KEYS[1], 600000)";
        let mut pipe = redis::pipe();
        pipe.cmd("DEBUG").arg(&["SLEEP", "0.4"]);
        let mut words = look.split(' ');
        pipe.cmd(words.next().unwrap_or_default()).arg(words.collect::<Vec<_>>());
        pipe.cmd("EVAL").arg(&[takes, "1", "lock"]);
        // RENEW has an error as its answer.
        let _ = pipe.query::<Vec<redis::Value>>(&mut watch);
        assert_eq!(holders(&mut watch, "lock"), held("write", 1, 0), "{look}");
    }
}

/// Ways to have UNLOCK run in a script, for this connection.
fn unlock_in_script(con: &mut Connection, how: &str, line: &str) {
    let (key, rest) = line.split_once(' ').expect("a key");
    let call = |name: &str| {
        let args: Vec<_> = rest.split(' ').map(|word| format!(", '{word}'")).collect();
        format!("return redis.call('RWLOCK.UNLOCK', {name}[1]{})", args.concat())
    };
    match how {
        "EVAL" => {
            int(call!(con, "EVAL", call("KEYS"), 1, key));
        }
        "FCALL" => {
            let library = format!(
                "#!lua name=l\n redis.register_function('f', function(keys) {} end)",
                call("keys")
            );
            call!(con, "FUNCTION", "LOAD", "REPLACE", library).expect("a function");
            int(call!(con, "FCALL", "f", 1, key));
        }
        _ => {
            assert_ok(run(con, "MULTI"));
            call!(con, "EVAL", call("KEYS"), 1, key).expect("queued");
            run(con, "EXEC").expect("run");
        }
    }
}

#[test]
fn unlock_in_a_script_gives_back_the_callers_session_hold_first() {
    for how in ["EVAL", "FCALL", "EVAL in MULTI"] {
        let server = Server::builder().start();
        let mut watch = server.connection();
        let (mut one, mut two) = (server.connection(), server.connection());
        // A client whose last command was a script, too.
        call!(two, "EVAL", "return 1", 0).expect("it runs");
        ok(&mut one, &format!("RLOCK lock a {HOUR} SESSION"));
        ok(&mut two, &format!("RLOCK lock a {TWO}"));
        ok(&mut two, &format!("RLOCK lock a {THREE} SESSION"));
        call!(two, "EVAL", "return 1", 0).expect("it runs");
        unlock_in_script(&mut one, how, "lock a");
        assert_eq!(hours(&mut watch, "lock", "a"), [2, 3], "{how}");
        // Then a plain one, and only then another connection's.
        unlock_in_script(&mut one, how, "lock a READ");
        assert_eq!(hours(&mut watch, "lock", "a"), [3], "{how}");
        unlock_in_script(&mut one, how, "lock a READ");
        assert_eq!(int(run(&mut watch, "DBSIZE")), 0, "{how}");

        ok(&mut one, &format!("WLOCK lock a {HOUR} SESSION"));
        ok(&mut two, &format!("WLOCK lock a {HOUR} SESSION"));
        ok(&mut watch, &format!("WLOCK lock a {HOUR}"));
        unlock_in_script(&mut two, how, "lock a WRITE");
        assert_eq!(holders(&mut watch, "lock"), held("write", 2, client_id(&mut one)), "{how}");
        close(two, &mut watch);
        assert_eq!(holders(&mut watch, "lock")[0].2, 2, "{how}");
        close(one, &mut watch);
        wait_until("one's hold is given back", || holders(&mut watch, "lock")[0].2 == 1);
        assert_eq!(holders(&mut watch, "lock"), held("write", 1, 0), "{how}");
    }
}

#[test]
fn a_scripts_unlock_ends_the_binding() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    // The last holder leaves, and somebody comes.
    ok(&mut con, &format!("WLOCK lock a {HOUR} SESSION"));
    script(&mut watch, &["HDEL lock a:write", "DEL lock"]);
    script(&mut watch, &["HSET lock mode write a:write 1", "PEXPIRE lock 60000"]);
    assert_eq!(holders(&mut watch, "lock"), held("write", 1, 0));
    // While another reads.
    ok(&mut con, &format!("RLOCK read a {HOUR} SESSION"));
    ok(&mut watch, &format!("RLOCK read b {HOUR}"));
    let timeout = "{read}:a:rwlock_timeout:1";
    script(&mut watch, &["HDEL read a", &format!("DEL {timeout}"), "PEXPIRE read 3600000"]);
    script(&mut watch, &["HSET read a 1", &format!("SET {timeout} 1 PX 60000")]);
    let mut found = holders(&mut watch, "read");
    found.retain(|(owner, ..)| owner == "a");
    assert_eq!(found, held("read", 1, 0));
    // The highest of several.
    ok(&mut con, &format!("RLOCK two a {HOUR}"));
    ok(&mut con, &format!("RLOCK two a {TWO} SESSION"));
    script(&mut watch, &["HINCRBY two a -1", "DEL {two}:a:rwlock_timeout:2"]);
    assert_eq!(holders(&mut watch, "two"), held("read", 1, 0));
    // Redisson's downgrade, which raises no key event.
    ok(&mut con, &format!("WLOCK down a {HOUR} SESSION"));
    ok(&mut con, &format!("RLOCK down a {TWO}"));
    script(&mut watch, &["HDEL down a:write", "HSET down mode read"]);
    ok(&mut watch, &format!("UPGRADE down a {HOUR}"));
    let mut found = holders(&mut watch, "down");
    found.sort();
    assert_eq!(found, [held("read", 1, 0), held("write", 1, 0)].concat());
    // One of several write holds: two are bound, and only one is left.
    let mut other = server.connection();
    ok(&mut con, &format!("WLOCK many a {HOUR} SESSION"));
    ok(&mut other, &format!("WLOCK many a {HOUR} SESSION"));
    script(&mut watch, &["HINCRBY many a:write -1"]);
    ok(&mut watch, &format!("WLOCK many a {HOUR}"));
    close(other, &mut watch);
    close(con, &mut watch);
    wait_until("one is given back", || holders(&mut watch, "many")[0].2 == 1);
    assert_eq!(holders(&mut watch, "many"), held("write", 1, 0));

    for lock in ["lock", "read", "two", "down"] {
        assert!(!holders(&mut watch, lock).is_empty(), "{lock}");
    }
}
