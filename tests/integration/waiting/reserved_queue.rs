//! A reservation, and those who wait.

use redis::Value;
use support::{int, text, Crowd, Server};

#[test]
fn who_waits_queues_behind_a_reservation() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // Whatever ends it serves them, though nobody ever touches the lock.
    for end in [
        "ttl",
        "DEL {k}:wait_write",
        "UNLINK {k}:wait_write",
        "force",
        "PEXPIRE {k}:wait_write 1",
        "RENAME {k}:wait_write x",
        "FLUSHALL",
    ] {
        let time = if end == "ttl" { 1_000 } else { 100_000 };
        crowd.ok("WLOCK k h 100000");
        assert!(crowd.refused(&format!("WLOCK k p 1000 RESERVE {time}")) > 0);
        crowd.gives("UNLOCK k h", 1);
        let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
        let mut second = crowd.waits("RLOCK k b 100000 BLOCK 0");
        let mut writer = crowd.waits("WLOCK k c 100000 BLOCK 0");
        assert_eq!(crowd.holders("k"), "", "{end}");
        assert_eq!(text(&crowd.inspect("k")["reserved_by"]), "p");
        match end {
            "ttl" => {}
            "force" => crowd.gives("FORCEUNLOCK k", 1),
            command => drop(crowd.plain(command)),
        }
        reader.granted();
        second.granted();
        assert_eq!(crowd.queue("k"), "c write", "{end}");
        assert_eq!(crowd.inspect("k")["reserved_by"], Value::Nil, "{end}");
        crowd.gives("UNLOCK k a", 0);
        crowd.gives("UNLOCK k b", 1);
        writer.granted();
        crowd.gives("UNLOCK k c", 1);
    }
}

#[test]
fn a_reservation_made_before_they_came_goes_before_those_who_wait() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    // Its end is not served while the lock is reserved ...
    crowd.gives("UNLOCK k h", 1);
    assert_eq!(crowd.holders("k"), "");
    assert!(crowd.refused("WLOCK k b 1000") > 0);
    // ... its owner comes back, and those who wait are next.
    crowd.ok("WLOCK k p 100000");
    assert_eq!(crowd.inspect("k")["reserved_by"], Value::Nil);
    crowd.gives("UNLOCK k p", 1);
    waiter.granted();
}

#[test]
fn the_owner_of_a_reservation_may_wait_and_goes_first() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    let mut first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut owner = crowd.waits("WLOCK k p 100000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    owner.granted();
    assert_eq!(crowd.inspect("k")["reserved_by"], Value::Nil);
    crowd.gives("UNLOCK k p", 1);
    first.granted();

    // Also when the lock is free but for its reservation, and others wait.
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    crowd.gives("UNLOCK k a", 1);
    let mut second = crowd.waits("WLOCK k b 100000 BLOCK 0");
    crowd.ok("WLOCK k p 100000 BLOCK 0");
    crowd.gives("UNLOCK k p", 1);
    second.granted();
}

#[test]
fn nothing_is_reserved_while_clients_wait() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    assert_eq!(crowd.inspect("k")["reserved_by"], Value::Nil);
    assert_eq!(int(crowd.plain("EXISTS {k}:wait_write")), 0);
    crowd.gives("UNLOCK k h", 1);
    waiter.granted();
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    assert_eq!(text(&crowd.inspect("k")["reserved_by"]), "p");
}

#[test]
fn preferred_readers_that_wait_join_whoever_has_reserved() {
    let server = Server::builder().module_arguments("policy prefer-readers").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    assert!(crowd.refused("WLOCK k p 1000 RESERVE 100000") > 0);
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    crowd.ok("DOWNGRADE k h 100000");
    reader.granted();
    crowd.ok("RLOCK k b 100000 BLOCK 0");
    assert_eq!(crowd.holders("k"), "a read, b read, h read");
    // A lock that is free is reserved for readers too.
    for owner in ["a", "b"] {
        crowd.gives(&format!("UNLOCK k {owner}"), 0);
    }
    crowd.gives("UNLOCK k h", 1);
    assert!(crowd.refused("RLOCK k c 1000") > 0);
}
