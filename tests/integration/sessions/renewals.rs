//! What the server must be able to do to renew a session hold.

use std::time::Duration;

use crate::sessions::{client_id, holders, ok};
use support::observe::{ends_at, run};
use support::{assert_ok, call, int, wait_until, wait_until_within, Server};

/// A primary whose replicas are cut off must not go on: the promoted replica
/// would have another holder.
#[test]
fn a_session_hold_is_not_renewed_while_replicas_are_missing() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut watch = server.connection();
    let mut set = |count: i64| {
        assert_ok(call!(watch, "CONFIG", "SET", "min-replicas-to-write", count));
    };
    for command in ["WLOCK", "RLOCK"] {
        ok(&mut con, &format!("{command} lock a 600 SESSION"));
        set(1);
        wait_until_within("its lease ends", Duration::from_secs(3), || {
            int(run(&mut con, "EXISTS lock")) == 0
        });
        set(0);
        // The replicas come back before the lease ends: it goes on.
        ok(&mut con, &format!("{command} lock a 6000 SESSION"));
        set(1);
        let first = ends_at(&mut con, "lock");
        // Longer than a third of the lease: it would have been renewed.
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(ends_at(&mut con, "lock"), first, "{command}");
        set(0);
        wait_until("it is renewed", || ends_at(&mut con, "lock") > first);
        let id = client_id(&mut con);
        assert_eq!(holders(&mut con, "lock")[0].3, id);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    }
}

/// RENEW works without memory, so this does.
#[test]
fn a_session_hold_is_renewed_while_memory_is_used_up() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "WLOCK lock a 900 SESSION");
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 1));
    let first = ends_at(&mut con, "lock");
    wait_until("it is renewed", || ends_at(&mut con, "lock") > first + 900);
}

/// DOWNGRADE's lease may be the shorter one.
#[test]
fn a_session_hold_that_was_downgraded_is_renewed_by_its_new_lease() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "WLOCK lock a 60000 SESSION");
    ok(&mut con, "DOWNGRADE lock a 900");
    let first = ends_at(&mut con, "lock");
    wait_until("it is renewed", || ends_at(&mut con, "lock") > first + 900);
    let id = client_id(&mut con);
    assert_eq!(holders(&mut con, "lock"), [("a".to_owned(), "read".to_owned(), 1, id)]);
}
