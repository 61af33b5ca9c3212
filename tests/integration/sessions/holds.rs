//! Session holds: what is bound to a connection, and for how long.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, Value};

use super::*;
use support::observe::{inspect, run};
use support::{assert_error, assert_ok, call, int, list, text, wait_until, Client, Server};

#[test]
fn a_session_hold_lives_as_long_as_its_connection() {
    let server = Server::builder().start();
    let mut other = server.connection();
    let mut con = server.connection();
    let locks = [("short", "RLOCK", 2_000), ("long", "WLOCK", 3_000)];
    for (lock, command, lease) in locks {
        ok(&mut con, &format!("{command} {lock} a {lease} SESSION"));
    }
    ok(&mut con, "RLOCK plain a 1000");
    let id = client_id(&mut con);
    let started = Instant::now();
    let mut low = [0; 2];
    while started.elapsed() < Duration::from_secs(10) {
        for ((lock, _, lease), low) in locks.into_iter().zip(&mut low) {
            let ttl = int(inspect(&mut other, lock, "ttl"));
            assert!((1..=lease).contains(&ttl), "{lock}: {ttl}");
            // Renewed at least every third of its lease; a busy machine is
            // given a third more, and a look or two: a server that stalled may
            // answer before it renews.
            *low = if ttl < lease / 3 { *low + 1 } else { 0 };
            assert!(*low < 3, "{lock}: {ttl}");
            assert_eq!(holders(&mut other, lock)[0].3, id, "{lock}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(holders(&mut other, "plain"), []);
    drop(con);
    wait_until("all are given back", || int(run(&mut other, "DBSIZE")) == 0);
}

#[test]
fn once_moves_a_binding_and_makes_a_plain_hold_a_session_hold() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    for command in ["RLOCK", "WLOCK"] {
        let (mut one, mut two) = (server.connection(), server.connection());
        let lock = format!("once-{command}");
        ok(&mut one, &format!("{command} {lock} a 60000"));
        assert_eq!(holders(&mut watch, &lock)[0].3, 0);
        ok(&mut one, &format!("{command} {lock} a 60000 SESSION ONCE"));
        let kind = if command == "RLOCK" { "read" } else { "write" };
        let held_by = |id: i64| [("a".to_owned(), kind.to_owned(), 1, id)];
        assert_eq!(holders(&mut watch, &lock), held_by(client_id(&mut one)));
        ok(&mut two, &format!("{command} {lock} a 60000 ONCE SESSION"));
        let second = client_id(&mut two);
        assert_eq!(holders(&mut watch, &lock), held_by(second));
        // Without SESSION the binding is left alone.
        ok(&mut watch, &format!("{command} {lock} a 60000 ONCE"));
        assert_eq!(holders(&mut watch, &lock), held_by(second));
        close(one, &mut watch);
        assert_eq!(holders(&mut watch, &lock), held_by(second));
        close_last(two, &mut watch);
    }
}

#[test]
fn once_binds_the_highest_of_several_read_holds() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    ok(&mut con, &format!("RLOCK lock a {HOUR}"));
    ok(&mut con, &format!("RLOCK lock a {TWO}"));
    ok(&mut con, &format!("RLOCK lock a {THREE} ONCE SESSION"));
    assert_eq!(hours(&mut watch, "lock", "a"), [1, 3]);
    close(con, &mut watch);
    wait_until("the bound one is given back", || hours(&mut watch, "lock", "a") == [1]);
}

#[test]
fn unlock_gives_back_ones_own_session_hold_then_a_plain_one_then_anothers() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    // Numbers 1 to 4: one's, plain, two's, plain.
    ok(&mut one, &format!("RLOCK lock a {HOUR} SESSION"));
    ok(&mut one, &format!("RLOCK lock a {TWO}"));
    ok(&mut two, &format!("RLOCK lock a {THREE} SESSION"));
    ok(&mut one, &format!("RLOCK lock a {FOUR}"));
    assert_eq!(unlock(&mut two, "lock a"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [1, 2, 4]);
    // Two has none any more: the highest plain one.
    assert_eq!(unlock(&mut two, "lock a READ"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [1, 2]);
    assert_eq!(unlock(&mut one, "lock a"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [2]);
    ok(&mut one, &format!("RLOCK lock a {HOUR} SESSION"));
    ok(&mut one, &format!("RLOCK lock a {THREE} SESSION"));
    // Of its own, the highest.
    assert_eq!(unlock(&mut one, "lock a"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [2, 1]);
    assert_eq!(unlock(&mut two, "lock a"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [1]);
    // Another's when there is nothing else.
    assert_eq!(unlock(&mut two, "lock a"), 1);
    assert_eq!(holders(&mut watch, "lock"), []);
    // And its binding is gone with it.
    ok(&mut two, "RLOCK lock a 60000");
    close(one, &mut watch);
    assert_eq!(holders(&mut watch, "lock")[0].2, 1);
    assert_eq!(unlock(&mut two, "lock a"), 1);
    assert_eq!(int(run(&mut watch, "DBSIZE")), 0);
}

#[test]
fn unlock_chooses_among_write_holds_the_same_way() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    ok(&mut one, "WLOCK lock a 60000 SESSION");
    ok(&mut two, "WLOCK lock a 60000 SESSION");
    ok(&mut watch, "WLOCK lock a 60000");
    let first = client_id(&mut one);
    // Its own first, so one's is the only binding that is left.
    assert_eq!(unlock(&mut two, "lock a WRITE"), 0);
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "write".into(), 2, first)]);
    // Then the plain one.
    assert_eq!(unlock(&mut two, "lock a"), 0);
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "write".into(), 1, first)]);
    close(two, &mut watch);
    assert_eq!(holders(&mut watch, "lock").len(), 1);
    close_last(one, &mut watch);
}

#[test]
fn bindings_follow_the_numbers_of_their_holds() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let (mut one, mut two) = (server.connection(), server.connection());
    // 1 plain and short, 2 one's, 3 plain, 4 two's.
    ok(&mut watch, "RLOCK lock a 150");
    ok(&mut one, &format!("RLOCK lock a {TWO} SESSION"));
    ok(&mut watch, &format!("RLOCK lock a {THREE}"));
    ok(&mut two, &format!("RLOCK lock a {FOUR} SESSION"));
    wait_until("the first lapses", || hours(&mut watch, "lock", "a") == [2, 3, 4]);
    close(one, &mut watch);
    wait_until("one's goes", || hours(&mut watch, "lock", "a") == [3, 4]);
    // The numbers of what was two's fourth hold: 3, then 2, then 1.
    assert_eq!(unlock(&mut watch, "lock a"), 0);
    assert_eq!(hours(&mut watch, "lock", "a"), [4]);
    ok(&mut watch, &format!("RLOCK lock a {HOUR}"));
    close(two, &mut watch);
    wait_until("two's goes", || hours(&mut watch, "lock", "a") == [1]);
    assert_eq!(unlock(&mut watch, "lock a"), 1);
}

#[test]
fn reset_keeps_session_holds() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    ok(&mut con, &format!("WLOCK lock a {HOUR} SESSION"));
    let id = client_id(&mut con);
    assert_eq!(text(run(&mut con, "RESET")), "RESET");
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "write".into(), 1, id)]);
    close_last(con, &mut watch);
}

#[test]
fn a_session_hold_stays_bound_through_downgrade_and_upgrade() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    let id = client_id(&mut con);
    ok(&mut con, "WLOCK lock a 900 SESSION");
    ok(&mut con, "DOWNGRADE lock a 900");
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "read".into(), 1, id)]);
    thread::sleep(Duration::from_millis(1_800));
    assert_eq!(holders(&mut watch, "lock").len(), 1, "renewed");
    // Up again: now two holds are bound.
    ok(&mut con, "UPGRADE lock a 900 SESSION");
    let mut both = holders(&mut watch, "lock");
    both.sort();
    assert_eq!(both, [("a".into(), "read".into(), 1, id), ("a".into(), "write".into(), 1, id)]);
    thread::sleep(Duration::from_millis(1_800));
    assert_eq!(holders(&mut watch, "lock").len(), 2, "both renewed");
    assert_eq!(unlock(&mut con, "lock a WRITE"), 0);
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "read".into(), 1, id)]);
    ok(&mut con, "UPGRADE lock a 900 SESSION");
    close_last(con, &mut watch);

    // A plain upgrade of a bound read hold: the write hold is not bound.
    let mut con = server.connection();
    ok(&mut con, &format!("RLOCK lock a {HOUR} SESSION"));
    ok(&mut con, &format!("UPGRADE lock a {HOUR}"));
    close(con, &mut watch);
    wait_until("the read hold is given back", || {
        holders(&mut watch, "lock") == [("a".into(), "write".into(), 1, 0)]
    });
    // A plain read hold that stays when a bound write hold goes.
    let mut con = server.connection();
    ok(&mut watch, &format!("RLOCK lock a {TWO}"));
    ok(&mut con, &format!("WLOCK lock a {HOUR} SESSION"));
    assert_eq!(unlock(&mut watch, "lock a WRITE"), 0);
    close(con, &mut watch);
    wait_until("the bound one is given back", || {
        holders(&mut watch, "lock") == [("a".into(), "read".into(), 1, 0)]
    });
}

#[test]
fn a_waiter_is_bound_to_its_own_connection() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    for line in ["WLOCK lock b 900 BLOCK 0 SESSION", "RLOCK lock b 900 SESSION BLOCK 0"] {
        ok(&mut watch, "WLOCK lock a 60000");
        let mut waiter = Client::waits(&server, line);
        assert_eq!(unlock(&mut watch, "lock a"), 1);
        waiter.granted();
        let id = waiter.id;
        assert_eq!(holders(&mut watch, "lock")[0].3, id);
        thread::sleep(Duration::from_millis(1_800));
        assert_eq!(holders(&mut watch, "lock")[0].3, id, "renewed");
        close(waiter.con, &mut watch);
        wait_until("it is free", || int(run(&mut watch, "DBSIZE")) == 0);
    }
    // UPGRADE as well.
    ok(&mut watch, "RLOCK lock a 60000");
    ok(&mut watch, "RLOCK lock b 60000");
    let mut waiter = Client::waits(&server, "UPGRADE lock b 900 BLOCK 0 SESSION");
    assert_eq!(unlock(&mut watch, "lock a"), 0);
    waiter.granted();
    thread::sleep(Duration::from_millis(1_800));
    close(waiter.con, &mut watch);
    wait_until("the write hold is given back", || {
        holders(&mut watch, "lock") == [("b".into(), "read".into(), 1, 0)]
    });
}

#[test]
fn a_binding_ends_with_its_hold_and_touches_no_later_one() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    for command in ["RLOCK", "WLOCK"] {
        for end in [
            "DEL lock",
            "UNLINK lock",
            "FLUSHALL",
            "FLUSHDB",
            "RENAME lock elsewhere",
            "RWLOCK.FORCEUNLOCK lock",
            "RWLOCK.UNLOCK lock a",
            "RWLOCK.UNLOCK lock a ALL",
            "lapse",
        ] {
            let mut con = server.connection();
            ok(&mut con, &format!("{command} lock a {TWO} SESSION"));
            if end == "lapse" {
                let timeout = "{lock}:a:rwlock_timeout:1";
                int(run(&mut watch, &format!("PEXPIRE {timeout} 1")));
                int(run(&mut watch, "PEXPIRE lock 1"));
                wait_until("it lapses", || int(run(&mut watch, "DBSIZE")) == 0);
            } else {
                run(&mut watch, end).expect(end);
            }
            ok(&mut watch, &format!("{command} lock a {HOUR}"));
            let after = |con: &mut Connection| {
                let ttl = int(inspect(con, "lock", "ttl"));
                let [(_, _, holds, session)] = holders(con, "lock")[..] else {
                    panic!("{command}, {end}: no single holder")
                };
                (holds, session, (ttl + 1_800_000) / 3_600_000)
            };
            assert_eq!(after(&mut watch), (1, 0, 1), "{command}, {end}");
            close(con, &mut watch);
            assert_eq!(after(&mut watch), (1, 0, 1), "{command}, {end}, closed");
            call!(watch, "FLUSHALL").expect("start again");
        }
    }
}

#[test]
fn a_swap_of_databases_ends_bindings_or_keeps_them_true() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    ok(&mut con, &format!("WLOCK lock a {HOUR} SESSION"));
    call!(watch, "SWAPDB", 0, 1).expect("swap");
    ok(&mut watch, &format!("WLOCK lock a {TWO}"));
    close(con, &mut watch);
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "write".into(), 1, 0)]);
}

#[test]
fn each_database_has_its_own_sessions() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    for db in ["0", "3"] {
        assert_ok(call!(con, "SELECT", db));
        ok(&mut con, "WLOCK lock a 3000 SESSION");
    }
    // Where it is now makes no difference.
    assert_ok(call!(con, "SELECT", 7));
    for db in ["0", "3"] {
        assert_ok(call!(watch, "SELECT", db));
        let end = ends_at(&mut watch, "lock");
        // Renewed twice.
        wait_until("it is renewed", || ends_at(&mut watch, "lock") > end + 1_500);
        assert_eq!(holders(&mut watch, "lock").len(), 1, "{db}");
    }
    drop(con);
    for db in ["0", "3"] {
        assert_ok(call!(watch, "SELECT", db));
        wait_until("it is free", || int(run(&mut watch, "DBSIZE")) == 0);
    }
}

#[test]
fn session_needs_a_client_and_takes_a_transaction() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let script = "return redis.call('RWLOCK.WLOCK', KEYS[1], 'a', 60000, 'SESSION')";
    assert_error(call!(con, "EVAL", script, 1, "lock"), "ERR");
    let library = "#!lua name=l\n redis.register_function('take', function(keys) return \
                   redis.call('RWLOCK.RLOCK', keys[1], 'a', 60000, 'SESSION') end)";
    call!(con, "FUNCTION", "LOAD", library).expect("a function");
    assert_error(call!(con, "FCALL", "take", 1, "lock"), "ERR");
    assert_eq!(int(run(&mut con, "DBSIZE")), 0);

    assert_ok(run(&mut con, "MULTI"));
    assert_eq!(text(run(&mut con, "RWLOCK.WLOCK lock a 900 SESSION BLOCK 0")), "QUEUED");
    assert_eq!(list(run(&mut con, "EXEC")), [Value::Okay]);
    let mut watch = server.connection();
    let id = client_id(&mut con);
    thread::sleep(Duration::from_millis(1_800));
    assert_eq!(holders(&mut watch, "lock"), [("a".into(), "write".into(), 1, id)]);
    drop(con);
    wait_until("it is free", || int(run(&mut watch, "DBSIZE")) == 0);
}

#[test]
fn a_stall_longer_than_the_lease_ends_session_holds() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "WLOCK lock a 400 SESSION");
    ok(&mut con, "RLOCK read a 400 SESSION");
    ok(&mut con, "WLOCK long a 60000 SESSION");
    let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 0");
    server.signal(libc::SIGSTOP);
    // Longer than the leases, which the server cannot renew now.
    thread::sleep(Duration::from_millis(900));
    server.signal(libc::SIGCONT);
    waiter.granted();
    let mut watch = server.connection();
    assert_eq!(holders(&mut watch, "lock"), [("b".into(), "write".into(), 1, 0)]);
    assert_eq!(holders(&mut watch, "read"), []);
    assert_eq!(holders(&mut watch, "long").len(), 1);
    // The connection takes them anew.
    assert_error(run(&mut con, "RWLOCK.UNLOCK read a"), "NOTHELD");
    ok(&mut con, "RLOCK read a 400 SESSION");
    drop(con);
    wait_until("two locks are free", || int(run(&mut watch, "DBSIZE")) == 1);
}
