//! For how long a lock has been held, as INSPECT, LIST and INFO tell.

use redis::Value;

use crate::monitoring::figures::info_figure;
use support::redisson::Redisson;
use support::{assert_ok, call, int, list, map, text, wait_until, Client, Clock, Crowd, Server};

/// A client that waits for two locks.
fn waits_for_both(crowd: &mut Crowd<'_>, owner: &str) -> Client {
    let total = |crowd: &mut Crowd<'_>| int(&crowd.inspect("k")["waiters_total"]);
    let before = total(crowd);
    let mut client = crowd.client();
    client.send(&format!("MLOCK {owner} 60000 WRITE 2 k other BLOCK 0"));
    wait_until("it waits", || total(crowd) > before);
    client
}

fn held(crowd: &mut Crowd<'_>, lock: &str) -> i64 {
    int(&crowd.inspect(lock)["held"])
}

/// Waits until a lock has been held for more than so many ms.
fn grow(crowd: &mut Crowd<'_>, lock: &str, ms: i64) {
    wait_until("time passes", || held(crowd, lock) > ms);
}

#[test]
fn it_counts_from_the_moment_at_which_a_free_lock_was_taken() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    assert_eq!(held(&mut crowd, "k"), 0);
    crowd.ok("RLOCK k a 60000");
    assert!((1..30_000).contains(&held(&mut crowd, "k")));
    grow(&mut crowd, "k", 100);
    // Whatever becomes of its holds, as long as there is one.
    for command in [
        "RLOCK k b 60000",
        "RLOCK k b 60000",
        "RENEW k b 90000",
        "UPGRADE k a 60000",
        "WLOCK k a 60000",
        "UNLOCK k a",
        "DOWNGRADE k a 60000",
    ] {
        if command.starts_with("UPGRADE") {
            crowd.gives("UNLOCK k b ALL", 0);
        }
        crowd.run(command).expect(command);
        assert!(held(&mut crowd, "k") > 100, "{command}");
    }
    crowd.refused("WLOCK k c 60000");
    assert!(held(&mut crowd, "k") > 100);
    crowd.gives("UNLOCK k a ALL", 1);
    assert_eq!(held(&mut crowd, "k"), 0);
    crowd.ok("WLOCK k a 60000");
    assert!(held(&mut crowd, "k") < 30_000);
    crowd.gives("UNLOCK k a", 1);
}

#[test]
fn a_lock_that_is_handed_over_is_never_free() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 60000");
    let mut writer = crowd.waits("WLOCK k b 60000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k c 60000 BLOCK 0");
    let mut last = waits_for_both(&mut crowd, "d");
    grow(&mut crowd, "k", 200);
    crowd.gives("UNLOCK k a", 1);
    writer.granted();
    assert!(held(&mut crowd, "k") > 200);
    crowd.gives("FORCEUNLOCK k", 1);
    reader.granted();
    assert!(held(&mut crowd, "k") > 200);
    assert_eq!(info_figure(&server, "hold_ms_max"), 0, "no lock has become free");
    assert_eq!(info_figure(&server, "held_locks"), 1);
    crowd.gives("UNLOCK k c", 1);
    last.granted();
    let (first, other) = (held(&mut crowd, "k"), held(&mut crowd, "other"));
    assert!(first > 200 && other < first, "{first} {other}");
    assert_eq!(info_figure(&server, "held_locks"), 2);
    assert_eq!(list(crowd.run("MUNLOCK d WRITE 2 k other")), [Value::Int(1), Value::Int(1)]);
    assert!(info_figure(&server, "hold_ms_max") > 200);
    assert_eq!(info_figure(&server, "held_locks"), 0);
}

#[test]
fn a_lock_whose_waiters_cannot_have_it_becomes_free() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 60000");
    crowd.ok("WLOCK other a 60000");
    // It still waits for the other lock.
    let mut joint = waits_for_both(&mut crowd, "b");
    grow(&mut crowd, "k", 200);
    crowd.gives("UNLOCK k a", 1);
    assert_eq!(held(&mut crowd, "k"), 0);
    assert!(info_figure(&server, "hold_ms_max") >= 200);
    assert_eq!(info_figure(&server, "held_locks"), 1);
    crowd.gives("UNLOCK other a", 1);
    joint.granted();
    assert!(held(&mut crowd, "k") < held(&mut crowd, "other"));
}

#[test]
fn a_lapse_ends_it_also_when_somebody_waits() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k a 400");
    let mut waiter = crowd.waits("WLOCK k b 60000 BLOCK 0");
    grow(&mut crowd, "k", 100);
    waiter.granted();
    let max = info_figure(&server, "hold_ms_max");
    assert!((390..60_000).contains(&max), "{max}");
    assert!(held(&mut crowd, "k") < 30_000);
    assert_eq!(info_figure(&server, "held_locks"), 1);
    crowd.ok("RLOCK r a 50");
    wait_until("it has lapsed", || held(&mut crowd, "r") == 0);
    wait_until("it is not counted", || info_figure(&server, "held_locks") == 1);
}

#[test]
fn what_others_do_to_a_lock_is_told_right_or_as_unknown() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let redisson = Redisson::load(&mut crowd.con).expect("load the scripts");
    let take = |crowd: &mut Crowd<'_>, lock: &str| {
        crowd.ok(&format!("WLOCK {lock} a 60000"));
        grow(crowd, lock, 30);
    };
    // A script takes a free lock: this server did not see when.
    redisson.write_lock("script", "a", 60_000).query::<Value>(&mut crowd.con).expect("a lock");
    assert_eq!(held(&mut crowd, "script"), -1);
    crowd.ok("RLOCK script a 60000");
    assert_eq!(held(&mut crowd, "script"), -1);
    crowd.gives("UNLOCK script a ALL", 1);
    assert_eq!(held(&mut crowd, "script"), 0);

    take(&mut crowd, "k");
    crowd.plain("DEL k");
    assert_eq!(held(&mut crowd, "k"), 0);
    wait_until("its end is counted", || info_figure(&server, "hold_ms_max") >= 30);
    // Deleted and taken by others, in one step.
    take(&mut crowd, "k");
    let retake = "redis.call('DEL', KEYS[1])
        redis.call('HSET', KEYS[1], 'mode', 'write', 'b:write', 1)
        return redis.call('PEXPIRE', KEYS[1], 60000)";
    assert_eq!(int(call!(crowd.con, "EVAL", retake, 1, "k")), 1);
    for _ in 0..20 {
        assert_eq!(held(&mut crowd, "k"), -1);
    }
    // Lapsed and taken by others before the module has looked.
    take(&mut crowd, "lapses");
    let relapse =
        retake.replace("redis.call('DEL', KEYS[1])", "redis.call('PEXPIRE', KEYS[1], -1)");
    assert_eq!(int(call!(crowd.con, "EVAL", relapse, 1, "lapses")), 1);
    wait_until("it is unknown", || held(&mut crowd, "lapses") == -1);

    take(&mut crowd, "from");
    crowd.plain("RENAME from to");
    assert_eq!((held(&mut crowd, "from"), held(&mut crowd, "to")), (0, -1));
    take(&mut crowd, "copied");
    crowd.plain("COPY copied k REPLACE");
    assert!(held(&mut crowd, "copied") >= 30);
    assert_eq!(held(&mut crowd, "k"), -1);

    // The locks move with their database.
    crowd.plain("SWAPDB 0 1");
    assert_eq!(held(&mut crowd, "copied"), 0);
    crowd.plain("SELECT 1");
    assert!(held(&mut crowd, "copied") >= 30);
    let locks = info_figure(&server, "held_locks");
    assert_eq!(locks, 4, "k, lapses, to, copied");
    crowd.plain("FLUSHALL");
    assert_eq!(held(&mut crowd, "copied"), 0);
    assert_eq!(info_figure(&server, "held_locks"), 0);
    crowd.ok("WLOCK copied a 60000");
    assert!(held(&mut crowd, "copied") < 30_000);
    assert_eq!(info_figure(&server, "held_locks"), 1);
}

#[test]
fn a_lock_that_was_held_before_the_start_is_held_for_an_unknown_time() {
    let mut server = Server::builder().aof().start();
    assert_ok(call!(server.connection(), "RWLOCK.WLOCK", "k", "a", 600_000));
    assert_ok(call!(server.connection(), "RWLOCK.WLOCK", "other", "a", 600_000));
    server.restart();
    let mut crowd = Crowd::on(&server);
    wait_until("the sweep is over", || server.info("rwlock")["rwlock_sweep"] == "done");
    assert_eq!(held(&mut crowd, "k"), -1);
    let names = |crowd: &mut Crowd<'_>, options: &str| -> Vec<String> {
        let rows = list(&list(crowd.run(&format!("LIST 0 {options}")))[1]);
        rows.iter().map(|row| text(&map(row)["key"])).collect()
    };
    // But not for less than this server has seen.
    wait_until("time passes", || names(&mut crowd, "HELD 200").len() == 2);
    assert_eq!(names(&mut crowd, "HELD 600000"), [""; 0]);
    crowd.gives("UNLOCK k a", 1);
    assert_eq!(info_figure(&server, "hold_ms_max"), 0, "an unknown time is not counted");
    crowd.ok("WLOCK k a 60000");
    assert!((1..30_000).contains(&held(&mut crowd, "k")));
}

#[test]
fn a_wall_clock_that_is_set_changes_nothing() {
    let clock = Clock::make();
    let server = Server::builder().clock(&clock).start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK before a 100000000");
    for (at, step) in [3_600_000, -7_200_000, 3_600_000, -600_000].into_iter().enumerate() {
        clock.step(step);
        // The server may not have noticed yet.
        crowd.ok(&format!("WLOCK k{at} a 100000000"));
        for lock in ["before".to_owned(), format!("k{at}")] {
            let ms = held(&mut crowd, &lock);
            assert!((1..60_000).contains(&ms), "{lock} after {step}: {ms}");
        }
    }
    grow(&mut crowd, "k0", 300);
    crowd.gives("UNLOCK k0 a", 1);
    let max = info_figure(&server, "hold_ms_max");
    assert!((300..60_000).contains(&max), "{max}");
}

#[test]
fn connections_are_shown_by_name() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut holder = crowd.client();
    assert_ok(call!(holder.con, "CLIENT", "SETNAME", "orders-7"));
    holder.send("WLOCK k a 60000 SESSION");
    holder.granted();
    let mut waiter = crowd.client();
    assert_ok(call!(waiter.con, "CLIENT", "SETNAME", "orders-8"));
    waiter.send("WLOCK k b 60000 BLOCK 0");
    wait_until("it waits", || crowd.queue("k") == "b write");
    let _nameless = crowd.waits("RLOCK k c 60000 BLOCK 0");
    let seen = crowd.inspect("k");
    let names = |what: &str| -> Vec<String> {
        list(&seen[what]).iter().map(|row| text(&map(row)["name"])).collect()
    };
    assert_eq!(names("holders"), ["orders-7"]);
    assert_eq!(names("waiters"), ["orders-8", ""]);
    // A plain hold has no connection.
    crowd.ok("RLOCK plain a 60000");
    assert_eq!(text(&map(&list(&crowd.inspect("plain")["holders"])[0])["name"]), "");
}
