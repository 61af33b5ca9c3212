//! Settings that change while locks are held and waited for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use support::{assert_error, call, int, list, map, on_this_machine, wait_until, Crowd, Server};

fn set(crowd: &mut Crowd<'_>, settings: &str) {
    assert_eq!(crowd.plain(&format!("CONFIG SET {settings}")), Value::Okay);
}

#[test]
fn a_policy_set_under_load_counts_from_the_next_decision_on() {
    let server = Server::builder().module_arguments("policy prefer-readers").start();
    let (done, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
    // Decisions are numbered, and so is the change of the policy.
    let (changed, joined) = thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (done, passed, server) = (&done, &passed, &server);
                scope.spawn(move || {
                    let mut crowd = Crowd::on(server);
                    let (mut held, mut joined) = (String::new(), Vec::new());
                    for turn in 0.. {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        let next = format!("r{reader}.{turn}");
                        // In one step: which decision is it, does a writer
                        // wait, and do I get in?
                        crowd.plain("MULTI");
                        crowd.plain("INCR decisions");
                        crowd.run("INSPECT k").expect("queued");
                        crowd.run(&format!("RLOCK k {next} 100000")).expect("queued");
                        let replies = list(crowd.plain("EXEC"));
                        let waits = int(&map(&replies[1])["waiters_total"]) > 0;
                        let got_in = replies[2] == Value::Okay;
                        if waits && got_in {
                            joined.push(int(&replies[0]));
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                        // It lets go of the last one only when it has the next,
                        // so that somebody always reads.
                        if !held.is_empty() {
                            crowd.run(&format!("UNLOCK k {held}")).expect("it was held");
                        }
                        held = if got_in { next } else { String::new() };
                    }
                    if !held.is_empty() {
                        crowd.run(&format!("UNLOCK k {held}")).expect("it was held");
                    }
                    joined
                })
            })
            .collect();
        let mut crowd = Crowd::on(&server);
        wait_until("the lock is read", || crowd.holders("k").contains("read"));
        let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
        wait_until("many join", || passed.load(Ordering::Relaxed) >= 100);
        crowd.plain("MULTI");
        crowd.plain("CONFIG SET rwlock.policy prefer-writers");
        crowd.plain("INCR decisions");
        let replies = list(crowd.plain("EXEC"));
        assert_eq!(replies[0], Value::Okay);
        let changed = int(&replies[1]);
        // The stream goes on, and the writer gets in.
        writer.granted();
        crowd.gives("UNLOCK k w", 1);
        for turn in 0..20 {
            let mut writer = crowd.client();
            writer.send(&format!("WLOCK k w{turn} 100000 BLOCK 0"));
            writer.granted();
            crowd.gives(&format!("UNLOCK k w{turn}"), 1);
            wait_until("readers are back", || crowd.holders("k").contains("read"));
        }
        done.store(true, Ordering::Relaxed);
        let joined = readers.into_iter().flat_map(|reader| reader.join().expect("a reader"));
        (changed, joined.collect::<Vec<i64>>())
    });
    // They passed a writer that waited until the very change, and none after it.
    assert!(joined.iter().any(|decision| *decision < changed));
    assert!(joined.iter().all(|decision| *decision < changed), "{changed}: {joined:?}");
}

#[test]
fn the_next_command_of_the_same_transaction_goes_by_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    crowd.plain("MULTI");
    crowd.run("RLOCK k b 100000").expect("queued");
    crowd.plain("CONFIG SET rwlock.policy prefer-readers");
    crowd.run("RLOCK k c 100000").expect("queued");
    crowd.plain("CONFIG SET rwlock.policy fifo");
    crowd.run("RLOCK k d 100000").expect("queued");
    let replies = list(crowd.plain("EXEC"));
    assert!(matches!(replies[0], Value::Int(_)), "{replies:?}");
    assert_eq!(replies[2], Value::Okay);
    assert!(matches!(replies[4], Value::Int(_)), "{replies:?}");
    crowd.gives("UNLOCK k a", 0);
    crowd.gives("UNLOCK k c", 1);
    writer.granted();
}

#[test]
fn those_who_wait_get_in_at_once_where_a_new_policy_lets_them() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for lock in ["k", "m"] {
        crowd.ok(&format!("RLOCK {lock} a 100000"));
    }
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for lock in ["k", "m"] {
        writers.push(crowd.waits(&format!("WLOCK {lock} w 100000 BLOCK 0")));
        readers.push(crowd.waits(&format!("RLOCK {lock} b 100000 BLOCK 0")));
        readers.push(crowd.waits(&format!("RLOCK {lock} c 100000 BLOCK 0")));
    }
    // In another database, too.
    crowd.plain("SELECT 3");
    crowd.ok("RLOCK k z 100000");
    for (command, clients) in [("WLOCK", &mut writers), ("RLOCK", &mut readers)] {
        let mut client = crowd.client();
        call!(client.con, "SELECT", 3).expect("select");
        client.send(&format!("{command} k far.{command} 100000 BLOCK 0"));
        wait_until("it waits", || crowd.waiting("k").contains(&client.id));
        clients.push(client);
    }
    crowd.plain("SELECT 0");
    set(&mut crowd, "rwlock.policy prefer-writers");
    set(&mut crowd, "rwlock.policy fifo");
    assert_eq!(crowd.queue("k"), "w write, b read, c read");
    // Nothing else happens: the change alone lets them in.
    set(&mut crowd, "rwlock.policy prefer-readers");
    for mut reader in readers {
        reader.granted();
    }
    for lock in ["k", "m"] {
        assert_eq!(crowd.queue(lock), "w write");
        assert_eq!(crowd.holders(lock), "a read, b read, c read");
        crowd.gives(&format!("UNLOCK {lock} a"), 0);
        crowd.gives(&format!("UNLOCK {lock} b"), 0);
        crowd.gives(&format!("UNLOCK {lock} c"), 1);
    }
    crowd.plain("SELECT 3");
    assert_eq!(crowd.holders("k"), "far.RLOCK read, z read");
    crowd.gives("UNLOCK k z", 0);
    crowd.gives("UNLOCK k far.RLOCK", 1);
    for mut writer in writers {
        writer.granted();
    }
}

#[test]
fn they_need_not_wait_until_the_lock_is_looked_at_again() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // A lock is looked at 50 ms after somebody began to wait for it, whatever
    // happens. The quickest of many is no stall of this machine.
    let quickest = (0..10).map(|n| {
        // Owners of its own: who waited in the round before may be there still.
        crowd.ok(&format!("RLOCK k{n} a{n} 100000"));
        let _writer = crowd.waits(&format!("WLOCK k{n} w{n} 100000 BLOCK 0"));
        let mut reader = crowd.waits(&format!("RLOCK k{n} b{n} 100000 BLOCK 0"));
        let before = Instant::now();
        set(&mut crowd, "rwlock.policy prefer-readers");
        let took = reader.granted() - before;
        set(&mut crowd, "rwlock.policy fifo");
        took
    });
    let quickest = quickest.min().expect("some");
    assert!(quickest < on_this_machine(Duration::from_millis(20), 10), "{quickest:?}");
}

#[test]
fn the_order_of_service_is_the_new_policys() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    assert_eq!(crowd.queue("k"), "a read, w write");
    set(&mut crowd, "rwlock.policy prefer-writers");
    assert_eq!(crowd.queue("k"), "w write, a read");
    crowd.gives("UNLOCK k h", 1);
    writer.granted();
    crowd.gives("UNLOCK k w", 1);
    reader.granted();
}

#[test]
fn circles_that_came_about_without_detection_are_broken_when_it_is_turned_on() {
    let server = Server::builder().module_arguments("deadlock-detection no").start();
    let mut crowd = Crowd::on(&server);
    // Two circles: of two owners, and of three over two databases.
    for (lock, owner) in [("x", "a"), ("y", "b"), ("p", "c"), ("q", "d"), ("r", "e")] {
        crowd.ok(&format!("WLOCK {lock} {owner} 100000"));
    }
    let mut first = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut youngest = crowd.waits("WLOCK x b 100000 BLOCK 0");
    let mut c = crowd.waits("WLOCK q c 100000 BLOCK 0");
    let mut d = crowd.waits("RLOCK r d 100000 BLOCK 0");
    let mut e = crowd.waits("RLOCK p e 100000 BLOCK 0");
    let mut innocent = crowd.waits("WLOCK x z 100000 BLOCK 0");
    set(&mut crowd, "rwlock.deadlock-detection yes");
    assert_eq!(youngest.fails("DEADLOCK"), "DEADLOCK b waits for a, a waits for b");
    assert_eq!(e.fails("DEADLOCK"), "DEADLOCK e waits for c, c waits for d, d waits for e");
    assert_eq!(crowd.queue("x"), "z write");
    crowd.gives("UNLOCK y b", 1);
    first.granted();
    crowd.gives("UNLOCK x a", 1);
    innocent.granted();
    crowd.gives("UNLOCK r e", 1);
    d.granted();
    crowd.gives("UNLOCK q d", 1);
    c.granted();
    crowd.nobody_waits();
    // And it stays on.
    crowd.ok("WLOCK x2 a 100000");
    crowd.ok("WLOCK y2 b 100000");
    let _waits = crowd.waits("WLOCK y2 a 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK x2 b 100000 BLOCK 0"), "DEADLOCK");
    set(&mut crowd, "rwlock.deadlock-detection no");
    let _waits = crowd.waits("WLOCK x2 b 100000 BLOCK 0");
}

#[test]
fn a_circle_that_a_new_policy_closes_is_broken() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // In k a reads before w writes, so w waits for a, and not a for w.
    crowd.ok("WLOCK k h 100000");
    crowd.ok("WLOCK m a 100000");
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut elsewhere = crowd.waits("WLOCK m w 100000 BLOCK 0");
    set(&mut crowd, "rwlock.policy prefer-writers");
    // Now a waits for w, too, and w for what a holds.
    elsewhere.fails("DEADLOCK");
    crowd.gives("UNLOCK k h", 1);
    writer.granted();
    crowd.gives("UNLOCK k w", 1);
    reader.granted();
    crowd.gives("UNLOCK m a", 1);
}

#[test]
fn who_gets_in_by_the_change_is_in_no_circle() {
    let server = Server::builder().module_arguments("deadlock-detection no").start();
    let mut crowd = Crowd::on(&server);
    // r waits behind w for a lock that x reads, and x for one that r holds. As
    // a reader r gets in, and then nobody is stuck.
    crowd.ok("RLOCK k x 100000");
    crowd.ok("WLOCK m r 100000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k r 100000 BLOCK 0");
    let mut other = crowd.waits("WLOCK m x 100000 BLOCK 0");
    set(&mut crowd, "rwlock.policy prefer-readers rwlock.deadlock-detection yes");
    reader.granted();
    assert_eq!(crowd.queue("m"), "x write");
    crowd.gives("UNLOCK m r", 1);
    other.granted();
    crowd.gives("UNLOCK k r", 0);
    crowd.gives("UNLOCK k x", 1);
    writer.granted();
}

#[test]
fn a_new_limit_is_for_those_who_come() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut waiting: Vec<_> =
        (0..5).map(|n| crowd.waits(&format!("WLOCK k o{n} 100000 BLOCK 0"))).collect();
    set(&mut crowd, "rwlock.max-waiters 2");
    assert_error(crowd.run("WLOCK k p 100000 BLOCK 0"), "ERR too many waiters");
    assert_eq!(crowd.waiting("k").len(), 5);
    set(&mut crowd, "rwlock.max-waiters 6");
    waiting.push(crowd.waits("WLOCK k o5 100000 BLOCK 0"));
    assert_error(crowd.run("WLOCK k p 100000 BLOCK 0"), "ERR too many waiters");
    set(&mut crowd, "rwlock.max-waiters 0");
    waiting.push(crowd.waits("WLOCK k o6 100000 BLOCK 0"));
    let mut holder = "h".to_owned();
    for (n, mut client) in waiting.into_iter().enumerate() {
        crowd.gives(&format!("UNLOCK k {holder}"), 1);
        client.granted();
        holder = format!("o{n}");
    }
}

#[test]
fn what_is_set_while_writes_are_paused_is_done_when_they_go_on() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    let _writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k b 100000 BLOCK 0");
    crowd.plain("CLIENT PAUSE 60000 WRITE");
    set(&mut crowd, "rwlock.policy prefer-readers");
    assert_eq!(crowd.queue("k"), "w write, b read");
    crowd.plain("CLIENT UNPAUSE");
    reader.granted();
}

#[test]
fn a_thousand_waiters_of_many_locks_are_served_anew() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut readers = Vec::new();
    for n in 0..100 {
        crowd.ok(&format!("RLOCK k{n} a 100000"));
    }
    let mut writers = Vec::new();
    for n in 0..100 {
        let mut writer = crowd.client();
        writer.send(&format!("WLOCK k{n} w{n} 100000 BLOCK 0"));
        writers.push(writer);
    }
    let waiters = |crowd: &mut Crowd<'_>| -> i64 {
        let queues = list(crowd.run("QUEUES COUNT 1000"));
        queues.iter().map(|queue| int(&map(queue)["waiters"])).sum()
    };
    wait_until("the writers wait", || waiters(&mut crowd) == 100);
    for n in 0..900 {
        let mut reader = crowd.client();
        reader.send(&format!("RLOCK k{} r{n} 100000 BLOCK 0", n % 100));
        readers.push(reader);
    }
    wait_until("all wait", || waiters(&mut crowd) == 1_000);
    set(&mut crowd, "rwlock.policy prefer-readers");
    for mut reader in readers {
        reader.granted();
    }
    assert_eq!(waiters(&mut crowd), 100);
}
