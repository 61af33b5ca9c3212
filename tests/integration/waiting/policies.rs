//! Who goes first: the policy.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use redis::Value;
use support::{assert_error, int, list, map, wait_until, Crowd, Server};

fn server(policy: &str) -> Server {
    Server::builder().module_arguments(format!("policy {policy}")).start()
}

#[test]
fn readers_do_not_pass_a_writer_that_waits() {
    // As it is without an argument, too.
    for server in [Server::builder().start(), server("fifo"), server("FIFO")] {
        let mut crowd = Crowd::on(&server);
        crowd.ok("RLOCK k a 100000");
        crowd.ok("RLOCK k b 100000");
        let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
        let mut late = crowd.waits("RLOCK k c 100000 BLOCK 0");
        assert!(crowd.refused("RLOCK k d 1000") > 0);
        crowd.gives("UNLOCK k a", 0);
        crowd.gives("UNLOCK k b", 1);
        writer.granted();
        crowd.gives("UNLOCK k w", 1);
        late.granted();
    }
}

#[test]
fn preferred_readers_join_whoever_waits() {
    let server = server("prefer-readers");
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k a 100000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    crowd.ok("RLOCK k b 100000");
    crowd.ok("RLOCK k c 100000 BLOCK 0");
    assert_eq!(crowd.holders("k"), "a read, b read, c read");
    crowd.gives("UNLOCK k a", 0);
    crowd.gives("UNLOCK k b", 0);
    crowd.gives("UNLOCK k c", 1);
    writer.granted();

    // They join readers, they do not pass the queue of a writer ...
    let mut second = crowd.waits("WLOCK k x 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k d 100000 BLOCK 0");
    let mut third = crowd.waits("WLOCK k y 100000 BLOCK 0");
    let mut last = crowd.waits("RLOCK k e 100000 BLOCK 0");
    assert!(crowd.refused("RLOCK k f 1000") > 0);
    crowd.gives("UNLOCK k w", 1);
    second.granted();
    // ... but when one of them is served all of them are.
    crowd.gives("UNLOCK k x", 1);
    reader.granted();
    last.granted();
    assert_eq!(crowd.holders("k"), "d read, e read");
    assert_eq!(crowd.queue("k"), "y write");
    crowd.gives("UNLOCK k d", 0);
    crowd.gives("UNLOCK k e", 1);
    third.granted();
}

#[test]
fn preferred_readers_join_a_writer_that_turns_to_reading() {
    let server = server("prefer-readers");
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    crowd.ok("DOWNGRADE k h 100000");
    reader.granted();
    assert_eq!(crowd.queue("k"), "w write");
    crowd.gives("UNLOCK k h", 0);
    crowd.gives("UNLOCK k a", 1);
    writer.granted();
}

#[test]
fn without_a_preference_a_downgrade_lets_in_the_readers_at_the_head() {
    let server = server("fifo");
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut first = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut second = crowd.waits("RLOCK k b 100000 BLOCK 0");
    crowd.ok("DOWNGRADE k h 100000");
    first.granted();
    assert_eq!(crowd.queue("k"), "w write, b read");
    crowd.gives("UNLOCK k h", 0);
    crowd.gives("UNLOCK k a", 1);
    writer.granted();
    // The same when the last write hold goes and its owner's read stays.
    crowd.ok("RLOCK k w 100000");
    crowd.gives("UNLOCK k w WRITE", 0);
    second.granted();
    assert_eq!(crowd.holders("k"), "b read, w read");
}

#[test]
fn preferred_writers_are_served_before_readers() {
    let server = server("prefer-writers");
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 100000");
    let mut first_reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    let mut first = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut second_reader = crowd.waits("RLOCK k b 100000 BLOCK 0");
    let mut second = crowd.waits("WLOCK k x 100000 BLOCK 0");
    assert_eq!(crowd.queue("k"), "w write, x write, a read, b read");
    crowd.gives("UNLOCK k h", 1);
    first.granted();
    crowd.gives("UNLOCK k w", 1);
    second.granted();
    crowd.gives("UNLOCK k x", 1);
    first_reader.granted();
    second_reader.granted();
    assert_eq!(crowd.holders("k"), "a read, b read");
    // Also among writers first come, first served; and readers wait for them.
    let mut writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    assert!(crowd.refused("RLOCK k c 1000") > 0);
    crowd.gives("UNLOCK k a", 0);
    crowd.gives("UNLOCK k b", 1);
    writer.granted();
}

#[test]
fn a_preferred_writer_that_leaves_lets_the_readers_in() {
    let server = server("prefer-writers");
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 100000");
    let writer = crowd.waits("WLOCK k w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK k a 100000 BLOCK 0");
    drop(writer);
    reader.granted();
}

#[test]
fn a_policy_that_is_none_is_refused() {
    for wrong in ["policy", "policy lifo", "policy fifo prefer", "max-waiters -1", "max-waiters x"]
    {
        let started = Server::builder().module_arguments(wrong).try_start();
        assert!(started.is_err(), "{wrong}");
    }
}

/// Readers that come and go without a pause, each time as another owner, so
/// that there are always some that hold the lock. Runs `work` meanwhile. Gives
/// how many got in while somebody waited.
fn stream_of_readers(server: &Server, work: impl FnOnce(&mut Crowd<'_>, &AtomicUsize)) -> usize {
    const READERS: usize = 4;
    let (done, joined) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (done, joined) = (&done, &joined);
            scope.spawn(move || {
                let mut crowd = Crowd::on(server);
                let (mut turn, mut held) = (0, String::new());
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let next = format!("r{reader}.{turn}");
                    // In one step: is somebody waiting, and do I get in?
                    crowd.plain("MULTI");
                    crowd.run("INSPECT k").expect("queued");
                    crowd.run(&format!("RLOCK k {next} 100000")).expect("queued");
                    let replies = list(crowd.plain("EXEC"));
                    let waiting = int(&map(&replies[0])["waiters_total"]) > 0;
                    if replies[1] == Value::Okay {
                        joined.fetch_add(usize::from(waiting), Ordering::Relaxed);
                        // It lets go of the last one only when it has the next.
                        if !held.is_empty() {
                            crowd.run(&format!("UNLOCK k {held}")).expect("it was held");
                        }
                        held = next;
                    } else if !held.is_empty() {
                        crowd.run(&format!("UNLOCK k {held}")).expect("it was held");
                        held.clear();
                    }
                }
                if !held.is_empty() {
                    crowd.run(&format!("UNLOCK k {held}")).expect("it was held");
                }
            });
        }
        let mut crowd = Crowd::on(server);
        wait_until("the lock is read", || crowd.holders("k").matches("read").count() > 1);
        work(&mut crowd, &joined);
        done.store(true, Ordering::Relaxed);
    });
    joined.into_inner()
}

#[test]
fn a_stream_of_readers_does_not_hold_up_a_writer() {
    for policy in ["fifo", "prefer-writers"] {
        let server = server(policy);
        let joined = stream_of_readers(&server, |crowd, _| {
            for turn in 0..20 {
                let mut writer = crowd.client();
                writer.send(&format!("WLOCK k w{turn} 100000 BLOCK 0"));
                writer.granted();
                crowd.gives(&format!("UNLOCK k w{turn}"), 1);
                wait_until("readers are back", || crowd.holders("k").contains("read"));
            }
        });
        assert_eq!(joined, 0, "readers passed the writer under {policy}");
    }
}

#[test]
fn a_stream_of_preferred_readers_does() {
    let server = server("prefer-readers");
    let mut writer = None;
    stream_of_readers(&server, |crowd, joined| {
        writer = Some(crowd.waits("WLOCK k w 100000 BLOCK 0"));
        wait_until("many join", || joined.load(Ordering::Relaxed) >= 200);
        assert_eq!(crowd.queue("k"), "w write");
    });
    // When the stream ends it has its turn.
    writer.expect("it waits").granted();
}

#[test]
fn under_prefer_writers_only_the_one_who_closes_a_circle_is_told() {
    let server = Server::builder().module_arguments("policy prefer-writers").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK l e 100000");
    crowd.ok("RLOCK m b 100000");
    let mut writer = crowd.waits("WLOCK m a 100000 BLOCK 0");
    let mut b = crowd.waits("RLOCK l b 100000 BLOCK 0");
    let mut a = crowd.waits("RLOCK l a 100000 BLOCK 0");
    // With it a would write before b reads, and its read would wait no longer.
    assert_error(crowd.run("WLOCK l a 100000 BLOCK 0"), "DEADLOCK");
    assert_eq!(crowd.queue("l"), "b read, a read");
    crowd.gives("UNLOCK l e", 1);
    b.granted();
    a.granted();
    crowd.gives("UNLOCK m b", 1);
    writer.granted();
}
