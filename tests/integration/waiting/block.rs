//! BLOCK: waiting in the server.

use std::time::{Duration, Instant};

use redis::Value;
use support::{assert_error, call, int, list, map, on_this_machine, wait_until, Crowd, Server};

#[test]
fn what_is_free_is_had_at_once_with_block_too() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK w a 100000 BLOCK 0");
    crowd.ok("WLOCK w a 100000 block 10");
    crowd.ok("RLOCK r a 100000 BLOCK 0");
    crowd.ok("RLOCK r b 100000 ONCE BLOCK 10");
    crowd.gives("UNLOCK r b", 0);
    crowd.ok("UPGRADE r a 100000 BLOCK 0");
    assert_eq!(crowd.holders("w"), "a write");
    assert_eq!(crowd.holders("r"), "a read, a write");
    crowd.nobody_waits();
}

#[test]
fn the_lease_starts_at_the_grant() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let asked = Instant::now();
    let mut writer = crowd.waits("WLOCK k a 5000 BLOCK 0");
    // The longer it waits, the surer the test sees a lease that starts early.
    wait_until("some time", || {
        let waiters = list(&crowd.inspect("k")["waiters"]);
        int(&map(&waiters[0])["waited"]) >= 300
    });
    let released = Instant::now();
    crowd.gives("UNLOCK k h", 1);
    writer.granted();
    let left = int(crowd.plain("PTTL k"));
    let since_release = i64::try_from(released.elapsed().as_millis()).unwrap_or(i64::MAX);
    // Two ms are for the clocks, which count whole ones.
    assert!(asked.elapsed() >= Duration::from_millis(298));
    assert!((5_000 - since_release - 2..=5_000).contains(&left), "{left} ms left");
}

#[test]
fn who_has_waited_long_enough_is_told_how_long_it_would_take() {
    const ROUNDS: usize = 9;
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut late = Vec::new();
    for round in 0..ROUNDS {
        let mut client = crowd.client();
        let time = 40 + 3 * round as u64;
        let sent = Instant::now();
        client.send(&format!("WLOCK k a 1000 BLOCK {time}"));
        let left = client.refused();
        let waited = sent.elapsed();
        assert!((50_000..=100_000).contains(&left), "{left} ms left");
        assert!(waited >= Duration::from_millis(time), "{waited:?} instead of {time} ms");
        late.push(waited - Duration::from_millis(time));
    }
    // The median: on a loaded machine some rounds are late through no fault of
    // the server's.
    late.sort();
    assert!(
        late[ROUNDS / 2] <= on_this_machine(Duration::from_millis(10), ROUNDS),
        "late by {late:?}"
    );
    crowd.nobody_waits();

    // Each kind of wait. A lock without an expiry says so.
    crowd.plain("PERSIST k");
    let mut reader = crowd.waits("RLOCK k a 1000 BLOCK 500");
    assert_eq!(reader.refused(), -1);
    crowd.ok("RLOCK r a 50000");
    crowd.ok("RLOCK r b 100000");
    let mut upgrade = crowd.waits("UPGRADE r a 1000 BLOCK 500");
    let left = upgrade.refused();
    assert!((50_000..=100_000).contains(&left), "{left} ms left");
    // The client goes on, the hold is still there.
    upgrade.send("UNLOCK r a READ");
    assert_eq!(upgrade.refused(), 0);
    crowd.nobody_waits();
}

#[test]
fn whose_time_is_up_lets_those_behind_it_in() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 100000");
    let mut writer = crowd.waits("WLOCK k w 1000 BLOCK 1000");
    let mut first = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut second = crowd.waits("RLOCK k b 100000 BLOCK 100000");
    assert!(writer.refused() > 0);
    first.granted();
    second.granted();
    assert_eq!(crowd.holders("k"), "a read, b read, h read");
    crowd.nobody_waits();
}

#[test]
fn block_0_waits_without_end() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut patient = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut other = crowd.waits("WLOCK k b 1000 BLOCK 1200");
    let waiters = list(&crowd.inspect("k")["waiters"]);
    assert_eq!(int(&map(&waiters[0])["timeout"]), 0);
    // Longer than the server looks at blocked clients by itself.
    assert!(other.refused() > 0);
    assert_eq!(crowd.waiting("k"), [patient.id]);
    crowd.gives("UNLOCK k h", 1);
    patient.granted();
}

#[test]
fn wrong_arguments_of_block_change_nothing() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 100000");
    for command in ["RLOCK k a 1000", "WLOCK k a 1000", "UPGRADE k h 1000"] {
        let no_integer = "ERR timeout is not an integer or out of range";
        for (option, error) in [
            ("BLOCK", "ERR syntax error near 'BLOCK'"),
            ("BLOCK 1 BLOCK 1", "ERR syntax error near 'BLOCK'"),
            ("BLOCK 1 block 2", "ERR syntax error near 'block'"),
            ("BLOCK 1 2", "ERR syntax error near '2'"),
            ("BLOCKS 1", "ERR syntax error near 'BLOCKS'"),
            ("BLOCK x", no_integer),
            ("BLOCK 1.5", no_integer),
            ("BLOCK +1", no_integer),
            ("BLOCK 01", no_integer),
            ("BLOCK 9223372036854775808", no_integer),
            // Now + timeout is more than there is time.
            ("BLOCK 9223372036854775807", no_integer),
            ("BLOCK -1", "ERR timeout is negative"),
        ] {
            let text = assert_error(crowd.run(&format!("{command} {option}")), "ERR");
            assert_eq!(text, error, "{option}");
        }
    }
    for options in ["BLOCK 10 RESERVE 1000", "RESERVE 1000 BLOCK 10", "BLOCK 0 RESERVE 1000"] {
        let command = format!("WLOCK k a 1000 {options}");
        let text = assert_error(crowd.run(&command), "ERR");
        let later = options.rsplit(' ').nth(1).expect("the second option");
        assert_eq!(text, format!("ERR syntax error near '{later}'"));
    }
    for command in ["UNLOCK k h BLOCK 1", "RENEW k h 1000 BLOCK 1", "DOWNGRADE k h 1000 BLOCK 1"] {
        assert_error(crowd.run(command), "ERR");
    }
    // A lease is checked before anybody waits for it.
    for lease in ["0", "-1", "x", "9223372036854775807"] {
        let command = format!("WLOCK k a {lease} BLOCK 0");
        let text = assert_error(crowd.run(&command), "ERR");
        let expected = "the lease is an integer of milliseconds, 1 or more";
        assert_eq!(text, format!("ERR invalid expire time in 'rwlock.wlock' command: {expected}"));
    }
    assert_eq!(crowd.holders("k"), "h read");
    assert_eq!(crowd.inspect("k")["reserved_by"], Value::Nil);
    crowd.nobody_waits();
}

#[test]
fn where_nobody_may_wait_block_means_nothing() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    crowd.ok("RLOCK r a 100000");
    crowd.ok("RLOCK r b 100000");
    let requests = ["WLOCK k a 1000 BLOCK 0", "RLOCK k a 1000 BLOCK 0", "UPGRADE r a 1000 BLOCK 0"];

    crowd.plain("MULTI");
    for request in requests {
        crowd.run(request).expect("queued");
    }
    crowd.run("WLOCK free a 1000 BLOCK 0").expect("queued");
    let replies = list(crowd.plain("EXEC"));
    for reply in &replies[..3] {
        assert!((1..=100_000).contains(&int(reply)), "{reply:?}");
    }
    assert_eq!(replies[3], Value::Okay);

    for request in requests {
        let mut command = redis::cmd("EVAL");
        command.arg("return redis.call(unpack(ARGV))").arg(1).arg("k");
        for (at, word) in request.split(' ').enumerate() {
            command.arg(if at == 0 { format!("RWLOCK.{word}") } else { word.to_owned() });
        }
        let left: i64 = command.query(&mut crowd.con).expect("run a script");
        assert!((1..=100_000).contains(&left), "{left}");
    }
    crowd.nobody_waits();

    // The rest of the request still counts: it queues behind those who wait.
    let mut waiter = crowd.waits("WLOCK k w 100000 BLOCK 0");
    crowd.plain("MULTI");
    crowd.run("UNLOCK k h").expect("queued");
    crowd.run("WLOCK k a 1000 BLOCK 0").expect("queued");
    let replies = list(crowd.plain("EXEC"));
    assert_eq!(int(&replies[0]), 1);
    assert!(int(&replies[1]) > 0);
    waiter.granted();
}

#[test]
fn what_a_client_sends_while_it_waits_is_done_after() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut client = crowd.waits("WLOCK k a 100000 BLOCK 0");
    client.send("UNLOCK k a");
    client.send("WLOCK k a 100000");
    crowd.gives("UNLOCK k h", 1);
    client.granted();
    assert_eq!(client.refused(), 1);
    client.granted();
    assert_eq!(crowd.holders("k"), "a write");
}

#[test]
fn a_client_that_goes_away_leaves_nothing_and_holds_up_nobody() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for way in ["closes", "is killed"] {
        let lock = way.replace(' ', "-");
        crowd.ok(&format!("RLOCK {lock} h 100000"));
        let leaver = crowd.waits(&format!("WLOCK {lock} w 1000 BLOCK 0"));
        let mut behind = crowd.waits(&format!("RLOCK {lock} a 100000 BLOCK 0"));
        if way == "is killed" {
            let id = leaver.id.to_string();
            assert_eq!(int(call!(crowd.con, "CLIENT", "KILL", "ID", id)), 1);
        }
        drop(leaver);
        behind.granted();
        assert_eq!(crowd.holders(&lock), "a read, h read");
        crowd.nobody_waits();
    }

    // In the middle of the queue, and as the only one.
    crowd.ok("WLOCK k h 100000");
    let mut first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let second = crowd.waits("WLOCK k b 100000 BLOCK 0");
    let third = crowd.waits("WLOCK k c 100000 BLOCK 0");
    drop(second);
    wait_until("two are left", || crowd.queue("k") == "a write, c write");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    drop(third);
    wait_until("nobody is left", || crowd.queue("k").is_empty());
    crowd.gives("UNLOCK k a", 1);
    crowd.nobody_waits();
    assert_eq!(int(crowd.plain("EXISTS k")), 0);
    assert_eq!(server.info("clients")["blocked_clients"], "0");
}

#[test]
fn there_are_as_many_waiters_as_the_server_allows() {
    let server = Server::builder().module_arguments("max-waiters 2").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    crowd.ok("WLOCK other h 100000");
    crowd.ok("RLOCK r a 100000");
    crowd.ok("RLOCK r b 100000");
    let mut first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let second = crowd.waits("RLOCK other b 100000 BLOCK 0");
    for refused in ["WLOCK k c 1000 BLOCK 0", "RLOCK k c 1000 BLOCK 10", "UPGRADE r b 10 BLOCK 0"] {
        assert_eq!(assert_error(crowd.run(refused), "ERR"), "ERR too many waiters");
    }
    // What need not wait is not refused, nor is what does not want to.
    crowd.ok("WLOCK free c 1000 BLOCK 0");
    assert!(crowd.refused("WLOCK k c 1000") > 0);
    // Each that ends makes room for one: by a grant, by leaving.
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    let mut third = crowd.waits("WLOCK k c 100000 BLOCK 500");
    drop(second);
    wait_until("it is gone", || crowd.queue("other").is_empty());
    let mut fourth = crowd.waits("WLOCK k d 100000 BLOCK 0");
    assert!(third.refused() > 0);
    let _fifth = crowd.waits("WLOCK k e 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK k f 1000 BLOCK 0"), "ERR too many waiters");
    crowd.gives("UNLOCK k a", 1);
    fourth.granted();
}

#[test]
fn max_waiters_0_is_without_limit() {
    let server = Server::builder().module_arguments("max-waiters 0").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let _first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let _second = crowd.waits("WLOCK k b 100000 BLOCK 0");
}

#[test]
fn what_waits_in_two_databases_waits_for_two_locks() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut zero = crowd.waits("WLOCK k a 100000 BLOCK 0");
    crowd.plain("SELECT 1");
    crowd.nobody_waits();
    crowd.ok("WLOCK k h 100000");
    let mut one = crowd.client();
    call!(one.con, "SELECT", 1).expect("select");
    one.send("WLOCK k b 100000 BLOCK 0");
    wait_until("it waits", || crowd.queue("k") == "b write");
    crowd.gives("UNLOCK k h", 1);
    one.granted();
    assert_eq!(crowd.holders("k"), "b write");
    crowd.plain("SELECT 0");
    assert_eq!(crowd.holders("k"), "h write");
    assert_eq!(crowd.waiting("k"), [zero.id]);
    crowd.gives("UNLOCK k h", 1);
    zero.granted();
}
