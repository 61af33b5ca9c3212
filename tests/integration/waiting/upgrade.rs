//! UPGRADE with BLOCK.

use std::time::Instant;

use support::{assert_error, call, int, list, map, text, wait_until, Crowd, Server};

const POLICIES: [&str; 3] = ["fifo", "prefer-readers", "prefer-writers"];

#[test]
fn an_upgrade_waits_ahead_of_all_and_new_readers_wait() {
    for policy in POLICIES {
        let server = Server::builder().module_arguments(format!("policy {policy}")).start();
        let mut crowd = Crowd::on(&server);
        crowd.ok("RLOCK k u 100000");
        crowd.ok("RLOCK k a 100000");
        let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
        let mut upgrade = crowd.waits("UPGRADE k u 100000 BLOCK 0");
        let mut reader = crowd.waits("RLOCK k r 100000 BLOCK 0");
        assert_eq!(crowd.queue("k"), "u upgrade, w write, r read", "{policy}");
        assert!(crowd.refused("RLOCK k b 1000") > 0, "{policy}");
        // Who reads already gets in again.
        crowd.ok("RLOCK k a 100000");
        crowd.gives("UNLOCK k a", 0);
        crowd.gives("UNLOCK k a", 0);
        upgrade.granted();
        assert_eq!(crowd.holders("k"), "u read, u write", "{policy}");
        assert_eq!(crowd.queue("k"), "w write, r read", "{policy}");
        // Back to reading: that ends a write hold, so it is a matter of policy
        // who gets in beside it.
        crowd.gives("UNLOCK k u WRITE", 0);
        if policy == "prefer-readers" {
            reader.granted();
            assert_eq!(crowd.queue("k"), "w write");
            crowd.gives("UNLOCK k r", 0);
            crowd.gives("UNLOCK k u", 1);
            writer.granted();
        } else {
            assert_eq!(crowd.queue("k"), "w write, r read");
            crowd.gives("UNLOCK k u", 1);
            writer.granted();
            crowd.gives("UNLOCK k w", 1);
            reader.granted();
        }
    }
}

#[test]
fn the_lease_of_an_upgrade_starts_at_the_grant() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k u 5000");
    crowd.ok("RLOCK k a 100000");
    let mut upgrade = crowd.waits("UPGRADE k u 50000 BLOCK 0");
    wait_until("some time", || {
        int(&map(&list(&crowd.inspect("k")["waiters"])[0])["waited"]) >= 200
    });
    let released = Instant::now();
    crowd.gives("UNLOCK k a", 0);
    upgrade.granted();
    let left = int(crowd.plain("PTTL k"));
    let since_release = i64::try_from(released.elapsed().as_millis()).unwrap_or(i64::MAX);
    // Two ms are for the clocks, which count whole ones.
    assert!((50_000 - since_release - 2..=50_000).contains(&left), "{left} ms left");
}

#[test]
fn only_one_upgrade_can_wait() {
    for detection in ["yes", "no"] {
        let server =
            Server::builder().module_arguments(format!("deadlock-detection {detection}")).start();
        let mut crowd = Crowd::on(&server);
        crowd.ok("RLOCK k a 100000");
        crowd.ok("RLOCK k b 100000");
        let mut first = crowd.waits("UPGRADE k a 100000 BLOCK 0");
        let text = assert_error(crowd.run("UPGRADE k b 1000 BLOCK 0"), "DEADLOCK");
        assert!(text.contains('a'), "{text}");
        assert_error(crowd.run("UPGRADE k b 1000 BLOCK 10"), "DEADLOCK");
        let left = crowd.refused("UPGRADE k b 1000");
        assert!((1..=100_000).contains(&left), "{left}");
        // The one that was refused still reads, and lets the other in.
        assert_eq!(crowd.holders("k"), "a read, b read");
        crowd.gives("UNLOCK k b", 0);
        first.granted();
        crowd.nobody_waits();
    }
}

#[test]
fn an_owner_may_upgrade_through_two_clients() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    crowd.ok("RLOCK k b 100000");
    let mut first = crowd.waits("UPGRADE k a 100000 BLOCK 0");
    let mut second = crowd.waits("UPGRADE k a 100000 BLOCK 0");
    crowd.gives("UNLOCK k b", 0);
    first.granted();
    second.granted();
    let holds = call!(crowd.con, "HGET", "k", "a:write").expect("a field");
    assert_eq!(text(holds), "2");
}

#[test]
fn who_reads_cannot_wait_to_write_but_by_upgrade() {
    // It would wait for itself; no detection is needed to see that.
    for detection in ["yes", "no"] {
        let server =
            Server::builder().module_arguments(format!("deadlock-detection {detection}")).start();
        let mut crowd = Crowd::on(&server);
        crowd.ok("RLOCK k a 100000");
        for command in ["WLOCK k a 1000 BLOCK 0", "WLOCK k a 1000 ONCE BLOCK 10"] {
            let text = assert_error(crowd.run(command), "DEADLOCK");
            assert!(text.contains('a'), "{text}");
        }
        assert!(crowd.refused("WLOCK k a 1000") > 0);
        crowd.ok("RLOCK k b 100000");
        assert_error(crowd.run("WLOCK k a 1000 BLOCK 0"), "DEADLOCK");
        crowd.nobody_waits();
        crowd.gives("UNLOCK k b", 0);
        crowd.ok("UPGRADE k a 1000 BLOCK 0");
    }
}

#[test]
fn who_does_not_read_has_nothing_to_wait_for() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    assert_error(crowd.run("UPGRADE k a 1000 BLOCK 0"), "NOTHELD");
    crowd.ok("RLOCK k b 100000");
    assert_error(crowd.run("UPGRADE k a 1000 BLOCK 0"), "NOTHELD");
    crowd.ok("WLOCK w b 100000");
    assert_error(crowd.run("UPGRADE w a 1000 BLOCK 0"), "NOTHELD");
    crowd.nobody_waits();
}

#[test]
fn an_upgrade_whose_reads_are_gone_has_nothing_to_wait_for() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // They lapse, or are given back, or are taken away with the lock.
    for (at, end) in ["", "UNLOCK", "FORCEUNLOCK", "DEL"].iter().enumerate() {
        let lock = format!("k{at}");
        let lease = if end.is_empty() { 600 } else { 100_000 };
        crowd.ok(&format!("RLOCK {lock} b 100000"));
        crowd.ok(&format!("RLOCK {lock} a {lease}"));
        let mut upgrade = crowd.waits(&format!("UPGRADE {lock} a 1000 BLOCK 0"));
        let mut reader = crowd.waits(&format!("RLOCK {lock} c 100000 BLOCK 0"));
        match *end {
            "" => {}
            "UNLOCK" => crowd.gives(&format!("UNLOCK {lock} a"), 0),
            "FORCEUNLOCK" => crowd.gives(&format!("FORCEUNLOCK {lock}"), 1),
            _ => assert_eq!(int(crowd.plain(&format!("DEL {lock}"))), 1),
        }
        upgrade.fails("NOTHELD");
        // Nobody waits because of it any more.
        reader.granted();
        let left = if at < 2 { "b read, c read" } else { "c read" };
        assert_eq!(crowd.holders(&lock), left, "{end}");
    }
    crowd.nobody_waits();
}

#[test]
fn an_upgrade_of_a_lock_that_another_owner_has_come_to_write_fails() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("SELECT 1");
    crowd.ok("WLOCK k x 100000");
    crowd.plain("SELECT 0");
    crowd.ok("RLOCK k a 100000");
    crowd.ok("RLOCK k b 100000");
    let mut upgrade = crowd.waits("UPGRADE k a 1000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k c 100000 BLOCK 0");
    crowd.plain("SWAPDB 0 1");
    upgrade.fails("NOTHELD");
    crowd.gives("UNLOCK k x", 1);
    reader.granted();
}

#[test]
fn an_upgrade_that_leaves_holds_up_nobody() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for way in ["time", "unblock", "disconnect"] {
        crowd.ok("RLOCK k a 100000");
        crowd.ok("RLOCK k b 100000");
        let block = if way == "time" { 1_000 } else { 0 };
        let mut upgrade = crowd.waits(&format!("UPGRADE k a 1000 BLOCK {block}"));
        let mut reader = crowd.waits("RLOCK k c 100000 BLOCK 0");
        match way {
            "time" => assert!(upgrade.refused() > 0),
            "unblock" => {
                let id = upgrade.id.to_string();
                assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", id)), 1);
                assert!(upgrade.refused() > 0);
            }
            _ => drop(upgrade),
        }
        reader.granted();
        assert_eq!(crowd.holders("k"), "a read, b read, c read");
        crowd.nobody_waits();
        crowd.gives("FORCEUNLOCK k", 1);
    }
}

#[test]
fn a_reservation_does_not_hold_an_upgrade_up() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    crowd.ok("RLOCK k b 100000");
    assert!(crowd.refused("WLOCK k w 1000 RESERVE 100000") > 0);
    let mut upgrade = crowd.waits("UPGRADE k a 100000 BLOCK 0");
    crowd.gives("UNLOCK k b", 0);
    upgrade.granted();
    assert_eq!(crowd.holders("k"), "a read, a write");
}
