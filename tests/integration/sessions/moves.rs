//! Session holds whose keys go to another place: the binding goes with them.

use redis::Connection;

use crate::sessions::{client_id, close, close_last, holders, ok, unlock, HOUR, TWO};
use support::observe::{ends_at, run};
use support::{assert_ok, call, int, wait_until, Server};

fn in_db<R>(con: &mut Connection, db: i64, work: impl FnOnce(&mut Connection) -> R) -> R {
    assert_ok(call!(con, "SELECT", db));
    let result = work(con);
    assert_ok(call!(con, "SELECT", 0));
    result
}

/// Runs all lines in one packet: nothing comes between them.
fn at_once(con: &mut Connection, lines: &[&str]) {
    let mut pipe = redis::pipe();
    for line in lines {
        let mut words = line.split(' ');
        pipe.cmd(words.next().unwrap_or_default()).arg(words.collect::<Vec<_>>());
    }
    pipe.query::<Vec<redis::Value>>(con).expect("all replies");
}

fn one_by_one(con: &mut Connection, lines: &[&str]) {
    for line in lines {
        run(con, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        // The timer and the refresh have both met the change by then; nothing tells of it.
        run(con, "RWLOCK.INSPECT other").expect("a look");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_session_hold_ends_with_its_connection_wherever_its_keys_have_gone() {
    let both = ["RLOCK", "WLOCK"];
    for (lines, commands, db, lock) in [
        (&["SWAPDB 0 1"][..], &both[..], 1, "lock"),
        (&["SWAPDB 0 1", "SWAPDB 0 1"], &both, 0, "lock"),
        (&["SWAPDB 0 1", "SWAPDB 1 2"], &both, 2, "lock"),
        (&["DEBUG RELOAD"], &both, 0, "lock"),
        // The timeout keys of read holds keep their names.
        (&["RENAME lock x"], &both[1..], 0, "x"),
        (&["RENAME lock x", "RENAME x lock"], &both[1..], 0, "lock"),
        (&["RENAMENX lock x", "RENAMENX x lock"], &both[1..], 0, "lock"),
        (&["MOVE lock 1"], &both[1..], 1, "lock"),
    ] {
        for command in commands {
            for run_lines in [at_once, one_by_one] {
                let what = format!("{command}, {lines:?}");
                let server = Server::builder().save_rdb().start();
                let mut watch = server.connection();
                let mut con = server.connection();
                let id = client_id(&mut con);
                ok(&mut con, &format!("{command} lock a {HOUR} SESSION"));
                run_lines(&mut watch, lines);
                let session = in_db(&mut watch, db, |con| holders(con, lock)[0].3);
                assert_eq!(session, id, "{what}");
                close(con, &mut watch);
                wait_until(&format!("{what}: it is given back"), || {
                    in_db(&mut watch, db, |con| int(run(con, "DBSIZE"))) == 0
                });
            }
        }
    }
}

#[test]
fn read_holds_survive_a_rename_there_and_back_in_one_step() {
    let server = Server::builder().start();
    let mut watch = server.connection();
    let mut con = server.connection();
    ok(&mut con, &format!("RLOCK lock a {HOUR} SESSION"));
    at_once(&mut watch, &["MULTI", "RENAME lock x", "RENAME x lock", "EXEC"]);
    assert_eq!(holders(&mut watch, "lock")[0].3, client_id(&mut con));
    close_last(con, &mut watch);
}

#[test]
fn a_session_hold_is_renewed_where_it_is_now() {
    for (line, db, lock) in [("SWAPDB 0 1", 1, "lock"), ("RENAME lock x", 0, "x")] {
        let server = Server::builder().start();
        let mut watch = server.connection();
        let mut con = server.connection();
        ok(&mut con, "WLOCK lock a 900 SESSION");
        run(&mut watch, line).expect(line);
        let first = in_db(&mut watch, db, |con| ends_at(con, lock));
        wait_until("it is renewed", || {
            in_db(&mut watch, db, |con| ends_at(con, lock)) > first + 900
        });
    }
}

#[test]
fn what_takes_the_place_of_a_lock_is_not_bound() {
    for lines in [
        &["RENAME lock x", "RWLOCK.WLOCK lock a 60000"][..],
        &["RWLOCK.WLOCK x a 60000", "RENAME x lock"],
        &["RWLOCK.WLOCK x a 60000", "COPY x lock REPLACE"],
        &["RENAME lock x", "DEL x", "RWLOCK.WLOCK lock a 60000"],
        &["SWAPDB 0 1", "RWLOCK.WLOCK lock a 60000"],
    ] {
        let server = Server::builder().start();
        let mut watch = server.connection();
        let mut con = server.connection();
        ok(&mut con, &format!("WLOCK lock a {TWO} SESSION"));
        at_once(&mut watch, lines);
        let plain = [("a".to_owned(), "write".to_owned(), 1, 0)];
        assert_eq!(holders(&mut watch, "lock"), plain, "{lines:?}");
        close(con, &mut watch);
        assert_eq!(holders(&mut watch, "lock"), plain, "{lines:?}");
        assert_eq!(unlock(&mut watch, "lock a"), 1);
    }
}
