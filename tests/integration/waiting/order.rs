//! First come, first served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis::Value;
use support::{call, int, list, map, owners_sorted, text, Client, Crowd, Server};

#[test]
fn writers_are_served_in_the_order_in_which_they_came() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let names = ["c", "a", "b", "e", "d"];
    let mut clients: Vec<Client> =
        names.iter().map(|name| crowd.waits(&format!("WLOCK k {name} 100000 BLOCK 0"))).collect();
    assert_eq!(crowd.queue("k"), "c write, a write, b write, e write, d write");
    let mut holder = "h";
    for (at, name) in names.iter().enumerate() {
        crowd.gives(&format!("UNLOCK k {holder}"), 1);
        clients[at].granted();
        assert_eq!(crowd.holders("k"), format!("{name} write"));
        assert_eq!(crowd.waiting("k").len(), names.len() - 1 - at);
        holder = name;
    }
}

#[test]
fn readers_that_follow_each_other_get_in_together() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut clients: Vec<Client> = ["R a", "R b", "W c", "R d", "R e", "W f"]
        .iter()
        .map(|what| {
            let (kind, owner) = what.split_once(' ').expect("two words");
            crowd.waits(&format!("{kind}LOCK k {owner} 100000 BLOCK 0"))
        })
        .collect();
    assert_eq!(crowd.queue("k"), "a read, b read, c write, d read, e read, f write");
    let mut serves = |unlock: &[&str], last: i64, served: std::ops::Range<usize>, holders: &str| {
        for (at, owner) in unlock.iter().enumerate() {
            let expected = if at + 1 == unlock.len() { last } else { 0 };
            crowd.gives(&format!("UNLOCK k {owner}"), expected);
        }
        for client in &mut clients[served] {
            client.granted();
        }
        assert_eq!(crowd.holders("k"), holders);
    };
    serves(&["h"], 1, 0..2, "a read, b read");
    serves(&["b", "a"], 1, 2..3, "c write");
    serves(&["c"], 1, 3..5, "d read, e read");
    serves(&["d", "e"], 1, 5..6, "f write");
    crowd.nobody_waits();
}

#[test]
fn release_and_grant_are_one_step() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // The next command of the same transaction sees the new holder.
    for (taken, waits, unlock, after) in [
        ("WLOCK k h 100000", "WLOCK k a 100000 BLOCK 0", "UNLOCK k h", "a write"),
        ("RLOCK k h 100000", "WLOCK k a 100000 BLOCK 0", "UNLOCK k h", "a write"),
        ("WLOCK k h 100000", "RLOCK k a 100000 BLOCK 0", "UNLOCK k h", "a read"),
        ("WLOCK k h 100000", "RLOCK k a 100000 BLOCK 0", "FORCEUNLOCK k", "a read"),
        ("WLOCK k h 100000", "RLOCK k a 100000 BLOCK 0", "DOWNGRADE k h 100000", "a read, h read"),
    ] {
        crowd.ok(taken);
        let mut waiter = crowd.waits(waits);
        crowd.plain("MULTI");
        crowd.run(unlock).expect("queued");
        crowd.run("INSPECT k").expect("queued");
        let replies = list(crowd.plain("EXEC"));
        assert!(matches!(replies[0], Value::Int(1) | Value::Okay), "{unlock}: {replies:?}");
        let seen = map(&replies[1]);
        assert_eq!(owners_sorted(&seen["holders"]), after, "{unlock}");
        assert_eq!(int(&seen["waiters_total"]), 0, "{unlock}");
        waiter.granted();
        crowd.gives("FORCEUNLOCK k", 1);
    }
}

#[test]
fn no_other_client_ever_sees_a_lock_free_that_somebody_waits_for() {
    const TURNS: usize = 300;
    let server = Server::builder().start();
    let done = AtomicBool::new(false);
    let (looks, free, taken) = thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let mut crowd = Crowd::on(&server);
            let (mut looks, mut free, mut taken) = (0, 0, 0);
            // Not before the first of them has it.
            while crowd.holders("k").is_empty() {}
            while !done.load(Ordering::Relaxed) {
                looks += 1;
                free += usize::from(text(&crowd.inspect("k")["mode"]) == "free");
                taken += usize::from(crowd.run("WLOCK k thief 1") == Ok(Value::Okay));
            }
            (looks, free, taken)
        });
        let mut crowd = Crowd::on(&server);
        crowd.ok("WLOCK k 0 100000");
        for turn in 1..=TURNS {
            let kind = if turn % 3 == 0 { "RLOCK" } else { "WLOCK" };
            let mut next = crowd.waits(&format!("{kind} k {turn} 100000 BLOCK 0"));
            crowd.gives(&format!("UNLOCK k {}", turn - 1), 1);
            next.granted();
        }
        done.store(true, Ordering::Relaxed);
        observer.join().expect("the observer ends")
    });
    assert!(looks > TURNS / 10, "only {looks} looks");
    assert_eq!((free, taken), (0, 0), "in {looks} looks");
}

#[test]
fn a_request_that_does_not_wait_jumps_no_queue() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 60000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    for request in ["RLOCK k a 1000", "RLOCK k a 1000 ONCE", "RLOCK k w 1000"] {
        let left = crowd.refused(request);
        assert!((1..=60_000).contains(&left), "{request}: {left}");
    }
    // Nor does one that waits for a short time.
    let mut reader = crowd.waits("RLOCK k a 1000 BLOCK 500");
    assert!(reader.refused() > 0);
    assert_eq!(crowd.holders("k"), "h read");
    crowd.gives("UNLOCK k h", 1);
    writer.granted();

    // A writer that waits behind nobody but a reader does not either.
    let mut reader = crowd.waits("RLOCK k r 100000 BLOCK 0");
    assert!(crowd.refused("WLOCK k a 1000") > 0);
    crowd.gives("UNLOCK k w", 1);
    reader.granted();
    assert!(crowd.refused("WLOCK k a 1000") > 0);
    crowd.ok("RLOCK k a 100000");
}

#[test]
fn a_holder_always_gets_in_again() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK r h 100000");
    let mut writer = crowd.waits("WLOCK r w 100000 BLOCK 0");
    crowd.ok("RLOCK r h 100000");
    crowd.ok("RLOCK r h 100000 BLOCK 0");
    crowd.ok("RLOCK r h 100000 ONCE BLOCK 0");
    // Whose hold was given back is a holder no more.
    crowd.gives("UNLOCK r h ALL", 1);
    writer.granted();
    assert!(crowd.refused("RLOCK r h 1000") > 0);

    let mut reader = crowd.waits("RLOCK r a 100000 BLOCK 0");
    let mut second = crowd.waits("WLOCK r b 100000 BLOCK 0");
    crowd.ok("WLOCK r w 100000");
    crowd.ok("WLOCK r w 100000 BLOCK 0");
    crowd.ok("RLOCK r w 100000");
    assert_eq!(crowd.queue("r"), "a read, b write");
    crowd.gives("UNLOCK r w ALL", 1);
    reader.granted();
    crowd.gives("UNLOCK r a", 1);
    second.granted();
}

#[test]
fn a_grant_serves_what_else_its_owner_waits_for() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut first = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let mut other = crowd.waits("WLOCK k b 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut again = crowd.waits("WLOCK k a 100000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    reader.granted();
    again.granted();
    assert_eq!(crowd.queue("k"), "b write");
    assert_eq!(text(call!(crowd.con, "HGET", "k", "a:write")), "2");
    crowd.gives("UNLOCK k a ALL", 1);
    other.granted();

    // A read grant serves its owner's other reads over a writer's head.
    let mut first = crowd.waits("RLOCK k c 100000 BLOCK 0");
    let writer = crowd.waits("WLOCK k d 100000 BLOCK 0");
    let mut second = crowd.waits("RLOCK k c 100000 BLOCK 0");
    let _stranger = crowd.waits("RLOCK k e 100000 BLOCK 0");
    crowd.gives("UNLOCK k b", 1);
    first.granted();
    second.granted();
    assert_eq!(crowd.holders("k"), "c read");
    assert_eq!(crowd.queue("k"), "d write, e read");
    drop(writer);
}
