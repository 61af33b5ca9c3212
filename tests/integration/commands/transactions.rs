//! WATCH, write pauses and read-only scripts.

use std::thread;

use redis::{Connection, Value};

use support::observe::{info_number, run};
use support::{assert_error, assert_ok, call, int, send, text, wait_until, Server};

/// Whether what `act` does to a watched key lets the transaction go on.
#[track_caller]
fn survives(server: &Server, key: &str, lines: &[&str]) -> bool {
    let mut watching = server.connection();
    let mut con = server.connection();
    assert_ok(call!(watching, "WATCH", key));
    for line in lines {
        drop(run(&mut con, &format!("RWLOCK.{line}")));
    }
    assert_ok(run(&mut watching, "MULTI"));
    assert_eq!(text(run(&mut watching, "PING")), "QUEUED");
    run(&mut watching, "EXEC").expect("end the transaction") != Value::Nil
}

#[test]
fn a_granted_request_breaks_a_watch_and_a_refused_one_does_not() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK write a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read b 60000"));
    for lines in [
        &["RLOCK write b 60000"][..],
        &["WLOCK write b 60000", "WLOCK write b 60000 ONCE"],
        &["UNLOCK write b", "UNLOCK write a READ", "RENEW write b 90000"],
        &["UPGRADE write b 60000", "DOWNGRADE write b 60000", "FORCEUNLOCK write READ"],
        &["INSPECT write", "RLOCK write a 0", "RLOCK write a 60000 NONSENSE"],
    ] {
        assert!(survives(&server, "write", lines), "{lines:?}");
    }
    for lines in [
        &["WLOCK read a 60000", "WLOCK read c 60000", "UPGRADE read a 60000"][..],
        &["UNLOCK read c", "UNLOCK read a WRITE", "RENEW read c 90000"],
        &["DOWNGRADE read a 60000", "FORCEUNLOCK read WRITE", "INSPECT read"],
    ] {
        assert!(survives(&server, "read", lines), "{lines:?}");
        assert!(survives(&server, "{read}:a:rwlock_timeout:1", lines), "{lines:?}");
    }
    assert!(survives(&server, "free", &["UNLOCK free a", "RENEW free a 1000", "INSPECT free"]));
    assert!(survives(&server, "{write}:wait_write", &["WLOCK write b 60000"]));

    let broken = |key: &str, line: &str| {
        assert!(!survives(&server, key, &[line]), "{key}: {line}");
    };
    broken("free", "RLOCK free a 60000");
    broken("free", "RLOCK free b 60000");
    broken("free", "RENEW free a 90000");
    broken("{free}:a:rwlock_timeout:1", "RENEW free a 95000");
    broken("{free}:a:rwlock_timeout:1", "UNLOCK free a");
    broken("free", "UNLOCK free b");
    broken("read", "UNLOCK read b");
    broken("read", "UPGRADE read a 60000");
    broken("read", "DOWNGRADE read a 60000");
    broken("{read}:a:rwlock_timeout:1", "FORCEUNLOCK read");
    broken("{write}:wait_write", "WLOCK write b 60000 RESERVE 60000");
    broken("write", "UNLOCK write a");
    broken("{write}:wait_write", "WLOCK write b 60000");
    broken("write", "WLOCK write b 60000");
    broken("write", "FORCEUNLOCK write");
    broken("{free}:a:rwlock_timeout:1", "RLOCK free a 60000");
}

#[test]
fn a_script_that_may_not_write_takes_no_lock_but_may_look() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 60000"));
    let mut script = |line: &str| {
        let words = ["EVAL_RO", "return redis.call(unpack(ARGV))", "0"];
        send(&mut con, words.into_iter().chain(line.split(' ')))
    };
    for line in [
        "RWLOCK.RLOCK lock b 60000",
        "RWLOCK.WLOCK lock b 60000",
        "RWLOCK.UNLOCK lock a",
        "RWLOCK.RENEW lock a 60000",
        "RWLOCK.UPGRADE lock a 60000",
        "RWLOCK.DOWNGRADE lock a 60000",
        "RWLOCK.FORCEUNLOCK lock",
    ] {
        let text = assert_error(script(line), "ERR");
        assert!(text.contains("Write commands are not allowed"), "{line}: {text}");
    }
    script("RWLOCK.INSPECT lock").expect("look from a read-only script");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
}

#[test]
fn while_writes_are_paused_nothing_changes_and_looking_goes_on() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 60000"));
    assert_ok(run(&mut con, "CLIENT PAUSE 60000 WRITE"));
    thread::scope(|scope| {
        let waiting = ["RWLOCK.RLOCK lock b 60000", "RWLOCK.UNLOCK lock a"].map(|line| {
            let mut con: Connection = server.connection();
            scope.spawn(move || run(&mut con, line))
        });
        wait_until("both are held up", || info_number(&server, "clients", "blocked_clients") == 2);
        run(&mut con, "RWLOCK.INSPECT lock").expect("look while writes are paused");
        assert_eq!(int(run(&mut con, "HEXISTS lock b")), 0);
        assert_eq!(int(run(&mut con, "HEXISTS lock a")), 1);
        assert_ok(run(&mut con, "CLIENT UNPAUSE"));
        for reply in waiting {
            reply.join().expect("a client").expect("a reply after the pause");
        }
    });
    assert_eq!(int(run(&mut con, "HEXISTS lock b")), 1);
    assert_eq!(int(run(&mut con, "HEXISTS lock a")), 0);
}
