//! Circles through queues: who stands ahead is waited for, and who leaves a queue changes
//! who waits for whom.

use support::{assert_error, Crowd, Server};

#[test]
fn who_is_ahead_in_a_queue_is_waited_for_before_it_has_the_lock() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x h 100000");
    crowd.ok("WLOCK y b 100000");
    let mut y = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut x = crowd.waits("WLOCK x a 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK x b 1000 BLOCK 0"), "DEADLOCK");
    assert_error(crowd.run("RLOCK x b 1000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK x h", 1);
    x.granted();
    crowd.gives("UNLOCK y b", 1);
    y.granted();
}

#[test]
fn a_waiter_that_a_grant_serves_may_close_a_circle() {
    let server = Server::builder().module_arguments("policy prefer-readers").start();
    let mut crowd = Crowd::on(&server);
    // w waits for x, and holds y, which r waits for; then r reads x as well.
    crowd.ok("RLOCK x h 100000");
    crowd.ok("WLOCK y w 100000");
    let mut writer = crowd.waits("WLOCK x w 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK y r 100000 BLOCK 0");
    crowd.ok("RLOCK x r 100000");
    reader.fails("DEADLOCK");
    crowd.gives("UNLOCK x r", 0);
    crowd.gives("UNLOCK x h", 1);
    writer.granted();
}

#[test]
fn only_the_waits_that_make_the_circle_count() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x h 100000");
    crowd.ok("WLOCK y b 100000");
    crowd.ok("WLOCK far h 100000");
    assert!(crowd.refused("WLOCK x a 1000 RESERVE 100000") > 0);
    let mut a = crowd.waits("WLOCK y a 100000 BLOCK 0");
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    // Both wait for something else as well, and came later for it.
    let mut far_a = crowd.waits("RLOCK far a 100000 BLOCK 0");
    let mut far_b = crowd.waits("RLOCK far b 100000 BLOCK 0");
    crowd.plain("MULTI");
    crowd.run("UNLOCK x h").expect("queued");
    crowd.run("WLOCK x a 100000").expect("queued");
    crowd.plain("EXEC");
    b.fails("DEADLOCK");
    assert_eq!(crowd.waiting("far"), [far_a.id, far_b.id]);
    assert_eq!(crowd.waiting("y"), [a.id]);
    crowd.gives("UNLOCK far h", 1);
    far_a.granted();
    far_b.granted();
    crowd.gives("UNLOCK y b", 1);
    a.granted();
}

#[test]
fn what_the_policy_puts_ahead_is_waited_for() {
    let server = Server::builder().module_arguments("policy prefer-writers").start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x h 100000");
    crowd.ok("WLOCK y r 100000");
    let mut reader = crowd.waits("RLOCK x r 100000 BLOCK 0");
    let mut elsewhere = crowd.waits("WLOCK y w 100000 BLOCK 0");
    // It would be served before r, which holds what w waits for.
    let text = assert_error(crowd.run("WLOCK x w 1000 BLOCK 0"), "DEADLOCK");
    assert!(text.contains('r') && text.contains('w'), "{text}");
    crowd.gives("UNLOCK x h", 1);
    reader.granted();
    crowd.gives("UNLOCK y r", 1);
    elsewhere.granted();
}

#[test]
fn a_circle_through_two_readers_in_one_queue_is_seen() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // x: h writes; z reads next, then y writes, then r reads. r waits for y, y
    // for z, and z for r, who holds m.
    crowd.ok("WLOCK x h 100000");
    crowd.ok("WLOCK m r 100000");
    let mut z = crowd.waits("RLOCK x z 100000 BLOCK 0");
    let mut y = crowd.waits("WLOCK x y 100000 BLOCK 0");
    let mut z_elsewhere = crowd.waits("WLOCK m z 100000 BLOCK 0");
    assert_error(crowd.run("RLOCK x r 1000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK x h", 1);
    z.granted();
    crowd.gives("UNLOCK m r", 1);
    z_elsewhere.granted();
    crowd.gives("UNLOCK x z", 1);
    y.granted();
}

#[test]
fn who_would_wait_behind_one_that_waits_for_it_is_told() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // a is about to read through one client; through another it would wait to
    // write behind y, who waits for a's reading to end.
    crowd.ok("WLOCK x h 100000");
    let mut read = crowd.waits("RLOCK x a 100000 BLOCK 0");
    let mut y = crowd.waits("WLOCK x y 100000 BLOCK 0");
    let text = assert_error(crowd.run("WLOCK x a 1000 BLOCK 0"), "DEADLOCK");
    assert!(text.contains('y'), "{text}");
    // To read again is no wait for y: a will have that as a holder.
    let mut again = crowd.waits("RLOCK x a 100000 BLOCK 0");
    crowd.gives("UNLOCK x h", 1);
    read.granted();
    again.granted();
    crowd.gives("UNLOCK x a ALL", 1);
    y.granted();
}

#[test]
fn who_leaves_a_queue_may_close_a_circle_of_others() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for unblocked in [false, true] {
        crowd.ok("WLOCK x h 100000");
        crowd.ok("WLOCK y b 100000");
        let mut elsewhere = crowd.waits("RLOCK y a 100000 BLOCK 0");
        // c writes first, whatever else it wants; then a and b read together.
        let mut first = crowd.waits("WLOCK x c 100000 BLOCK 0");
        let mut a = crowd.waits("RLOCK x a 100000 BLOCK 0");
        let mut c = crowd.waits("WLOCK x c 100000 BLOCK 0");
        let mut b = crowd.waits("RLOCK x b 100000 BLOCK 0");
        // Now c writes between the two: b waits for a, who waits for b.
        if unblocked {
            crowd.plain(&format!("CLIENT UNBLOCK {}", first.id));
            assert!(first.refused() > 0);
        } else {
            drop(first);
        }
        let text = b.fails("DEADLOCK");
        assert!(text.contains("a waits for b"), "{text}");
        assert_eq!(crowd.waiting("x"), [a.id, c.id]);
        crowd.gives("UNLOCK y b", 1);
        elsewhere.granted();
        crowd.gives("UNLOCK x h", 1);
        a.granted();
        crowd.gives("UNLOCK x a", 1);
        c.granted();
        crowd.gives("UNLOCK y a", 1);
        crowd.gives("UNLOCK x c", 1);
        crowd.nobody_waits();
    }
}

#[test]
fn a_reader_joins_those_who_read_when_the_writer_ahead_of_it_is_told() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK x a 100000");
    crowd.ok("RLOCK y b 100000");
    let mut first = crowd.waits("WLOCK x b 100000 BLOCK 0");
    let mut elsewhere = crowd.waits("WLOCK x c 100000 BLOCK 0");
    let mut b = crowd.waits("WLOCK x b 100000 BLOCK 0");
    let mut writer = crowd.waits("WLOCK y c 100000 BLOCK 0");
    let mut reader = crowd.waits("RLOCK y c 100000 BLOCK 0");
    // Now b waits for c, whose writer waits for b. Without that one c reads beside b.
    crowd.plain(&format!("CLIENT UNBLOCK {}", first.id));
    assert!(first.refused() > 0);
    writer.fails("DEADLOCK");
    reader.granted();
    crowd.gives("UNLOCK x a", 1);
    elsewhere.granted();
    crowd.gives("UNLOCK x c", 1);
    b.granted();
    crowd.gives("UNLOCK x b", 1);
    crowd.nobody_waits();
}

#[test]
fn who_waits_behind_a_reservation_waits_for_the_holders() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK y h 100000");
    crowd.ok("WLOCK x r 100000");
    assert!(crowd.refused("WLOCK y p 1000 RESERVE 100000") > 0);
    let mut r = crowd.waits("RLOCK y r 100000 BLOCK 0");
    assert_error(crowd.run("WLOCK x h 100000 BLOCK 0"), "DEADLOCK");
    crowd.gives("UNLOCK y h", 1);
    crowd.ok("WLOCK y p 1000");
    crowd.gives("UNLOCK y p", 1);
    r.granted();
}
