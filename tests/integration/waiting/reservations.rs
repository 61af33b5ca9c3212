//! RESERVE: the place of a writer that polls.

use support::lock::{free, held, whoever_meets_it, Lease, Lock};
use support::{Crowd, Server};

#[test]
fn a_refused_writer_leaves_a_reservation() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "read");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
    lock.is(held(&a).reads("a", [&a]).reserved("w", &place));

    let mut lock = Lock::on(&server, "write");
    let a = lock.ok("WLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 ONCE reserve 10000", &a);
    lock.is(held(&a).writes("a", 1).reserved("w", &place));

    // Words may stand in any order.
    let mut lock = Lock::on(&server, "order");
    let a = lock.ok("WLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 300000 ONCE", &a);
    lock.is(held(&a).writes("a", 1).reserved("w", &place));
}

#[test]
fn only_its_owner_refreshes_a_reservation_that_stands() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    lock.reserves("WLOCK w 50000 RESERVE 20000", &a);
    let place = lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
    lock.is(held(&a).reads("a", [&a]).reserved("w", &place));
    // Another writer's does not replace it, nor does a refusal without the word.
    lock.refuses("WLOCK x 50000 RESERVE 300000", &place);
    lock.refuses("WLOCK w 50000", &a);
    lock.is(held(&a).reads("a", [&a]).reserved("w", &place));
}

#[test]
fn a_reservation_that_lapsed_is_free_for_another_writer() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 20", &a);
    lock.pass(&place);
    let place = lock.reserves("WLOCK x 50000 RESERVE 200000", &a);
    lock.is(held(&a).reads("a", [&a]).reserved("x", &place));
}

#[test]
fn a_reader_s_own_write_request_is_refused_and_may_reserve() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK a 50000 RESERVE 200000", &a);
    lock.is(held(&a).reads("a", [&a]).reserved("a", &place));
    // Its own does not keep it out, and is there for the write.
    let second = lock.ok("RLOCK a 10000");
    lock.is(held(&a).reads("a", [&a, &second]).reserved("a", &place));
    lock.gives("UNLOCK a", 0);
    lock.gives("UNLOCK a", 1);
    lock.is(free().reserved("a", &place));
    let write = lock.ok("WLOCK a 50000");
    lock.is(held(&write).writes("a", 1));
}

#[test]
fn a_reserved_free_lock_is_refused_to_all_others_until_the_reservation_ends() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("WLOCK a 300000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 100000", &a);
    lock.gives("UNLOCK a", 1);
    lock.is(free().reserved("w", &place));
    for command in [
        "RLOCK a 10000",
        "RLOCK b 10000 ONCE",
        "WLOCK a 10000",
        "WLOCK b 10000 ONCE",
        "WLOCK b 10000 RESERVE 500000",
    ] {
        lock.refuses(command, &place);
    }
    lock.is(free().reserved("w", &place));
    // One that never ends.
    let name = lock.derived("wait_write");
    redis::cmd("PERSIST").arg(name).exec(&mut lock.con).expect("persist the reservation");
    lock.gives("RLOCK a 10000", -1);
    lock.gives("WLOCK a 10000", -1);
    lock.is(free().reserved("w", &Lease::never()));
    // And one that does.
    let place = lock.expire_reservation(20);
    lock.pass(&place);
    let b = lock.ok("RLOCK b 10000");
    lock.is(held(&b).reads("b", [&b]));
}

#[test]
fn its_owner_takes_the_lock_and_a_write_consumes_the_reservation() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 300000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
    lock.gives("UNLOCK a", 1);
    // A read hold is not what was reserved.
    let read = lock.ok("RLOCK w 10000");
    lock.is(held(&read).reads("w", [&read]).reserved("w", &place));
    lock.gives("UNLOCK w", 1);
    // Granted, it leaves none, whether asked to or not.
    let write = lock.ok("WLOCK w 50000 RESERVE 400000");
    lock.is(held(&write).writes("w", 1));
    lock.gives("UNLOCK w", 1);
    lock.ok("WLOCK w 50000 RESERVE 400000");
    lock.gives("UNLOCK w", 1);
    lock.is(free());
}

#[test]
fn a_reentrant_write_consumes_its_owner_s_reservation() {
    let server = Server::builder().start();
    for again in ["WLOCK a 10000", "WLOCK a 10000 ONCE"] {
        let mut lock = Lock::on(&server, again);
        let write = lock.ok("WLOCK a 100000");
        // A client of Redisson's, or a plain one, has left it.
        let name = lock.derived("wait_write");
        redis::cmd("SET").arg(name).arg("a").exec(&mut lock.con).expect("set the reservation");
        lock.is(held(&write).writes("a", 1).reserved("a", &Lease::never()));
        lock.ok(again);
        let writes = if again.ends_with("ONCE") { 1 } else { 2 };
        lock.is(held(&write).writes("a", writes));
    }
}

#[test]
fn a_reservation_keeps_new_readers_from_a_read_held_lock() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 500000", &a);
    lock.refuses("RLOCK b 10000", &place);
    lock.refuses("RLOCK b 10000 ONCE", &place);
    lock.is(held(&a).reads("a", [&a]).reserved("w", &place));
    // The owner of the reservation may read beside the others meanwhile.
    let read = lock.ok("RLOCK w 200000");
    lock.is(held(&read).reads("a", [&a]).reads("w", [&read]).reserved("w", &place));
}

#[test]
fn a_holder_gets_in_again_whoever_has_reserved() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "read");
    let first = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 500000", &first);
    let second = lock.ok("RLOCK a 200000");
    lock.is(held(&second).reads("a", [&first, &second]).reserved("w", &place));
    let second = lock.ok("RLOCK a 300000 ONCE");
    lock.is(held(&second).reads("a", [&first, &second]).reserved("w", &place));
    let upgraded = lock.ok("UPGRADE a 400000");
    lock.is(held(&upgraded).writes("a", 1).reads("a", [&first, &second]).reserved("w", &place));

    let mut lock = Lock::on(&server, "write");
    let write = lock.ok("WLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 500000", &write);
    lock.ok("WLOCK a 10000");
    lock.ok("WLOCK a 10000 ONCE");
    let read = lock.ok("RLOCK a 10000");
    lock.is(held(&write).writes("a", 2).reads("a", [&read]).reserved("w", &place));
    // DOWNGRADE, RENEW and UNLOCK let it stand as well.
    lock.ok("RENEW a 20000");
    lock.ok("DOWNGRADE a 30000");
    lock.gives("UNLOCK a", 1);
    lock.is(free().reserved("w", &place));
}

#[test]
fn a_reader_whose_hold_lapsed_is_a_new_one_to_a_reservation() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        lock.ok("RLOCK a 100000");
        let b = lock.ok("RLOCK b 200000");
        let place = lock.reserves("WLOCK w 50000 RESERVE 500000", &b);
        lock.lapse("a", [1]);
        lock.refuses("RLOCK a 10000", &place);
        lock.is(held(&b).reads("b", [&b]).reserved("w", &place));
        // The last one as well: the lock is free but for the reservation.
        lock.lapse("b", [1]);
        lock.refuses("RLOCK b 10000", &place);
        lock.is(free().reserved("w", &place));
    });
}

#[test]
fn a_refusal_tells_the_end_of_a_reservation_that_outlasts_the_lock() {
    let server = Server::builder().start();
    for hold in ["RLOCK a 100000", "WLOCK a 100000"] {
        let mut lock = Lock::on(&server, hold.split(' ').next().expect("a word"));
        let held = lock.ok(hold);
        let place = lock.reserves("WLOCK w 50000 RESERVE 400000", &held);
        lock.refuses("WLOCK b 10000", &place);
        lock.refuses("WLOCK b 10000 BLOCK 1", &place);
        lock.refuses("RLOCK b 10000", &place);
        // It is not in the way of its owner.
        lock.refuses("WLOCK w 10000", &held);
        lock.refuses("WLOCK w 10000 BLOCK 1", &held);
        // Nor of one who upgrades.
        if hold.starts_with('R') {
            let b = lock.ok("RLOCK a 200000");
            let mut beside = Lock::on(&server, "beside");
            beside.ok("RLOCK a 200000");
            let c = beside.ok("RLOCK c 200000");
            beside.reserves("WLOCK w 50000 RESERVE 400000", &c);
            beside.refuses("UPGRADE a 10000", &c);
            lock.refuses("WLOCK w 10000", &b);
        }
    }
}

#[test]
fn its_owner_refreshes_it_though_others_wait_since() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("WLOCK a 300000");
    lock.reserves("WLOCK w 50000 RESERVE 60000", &a);
    let mut crowd = Crowd::on(&server);
    let mut waiter = crowd.waits("WLOCK k b 50000 BLOCK 0");
    let place = lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
    lock.is(held(&a).writes("a", 1).reserved("w", &place));
    // Who has none leaves none: others are before it.
    lock.gives("UNLOCK w ALL", 0);
    lock.refuses("WLOCK w 50000 RESERVE 200000", &a);
    lock.is(held(&a).writes("a", 1));
    lock.gives("UNLOCK a", 1);
    waiter.granted();
}

#[test]
fn its_owner_withdraws_it_and_who_waits_is_served() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let mut crowd = Crowd::on(&server);
    for session in ["", " SESSION"] {
        // Beside holds of others.
        let a = lock.ok(&format!("RLOCK a 300000{session}"));
        lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
        let mut reader = crowd.waits("RLOCK k b 300000 BLOCK 0");
        lock.not_held("UNLOCK w", "held by others, in read mode");
        lock.gives("UNLOCK w ALL", 0);
        reader.granted();
        lock.not_held("UNLOCK w ALL", "held by others, in read mode");
        // Nobody holds the lock.
        assert!(crowd.refused("WLOCK k w 50000 RESERVE 200000") > 0);
        lock.gives("UNLOCK b", 0);
        lock.gives("UNLOCK a", 1);
        let mut writer = crowd.waits("WLOCK k b 300000 BLOCK 0");
        lock.gives("UNLOCK w ALL", 1);
        writer.granted();
        lock.gives("UNLOCK b", 1);
        lock.not_held("UNLOCK w ALL", "free");
        // With its own holds.
        let read = lock.ok(&format!("RLOCK w 300000{session}"));
        lock.reserves("WLOCK w 50000 RESERVE 200000", &read);
        lock.gives("UNLOCK w ALL", 1);
        lock.is(free());
    }
}

#[test]
fn an_upgrade_of_its_owner_uses_it_up() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let read = lock.ok("RLOCK w 50000");
    lock.reserves("WLOCK w 50000 RESERVE 200000", &read);
    let write = lock.ok("UPGRADE w 60000");
    lock.is(held(&write).writes("w", 1).reads("w", [&read]));
}

#[test]
fn its_owner_does_not_read_past_a_writer_that_waits() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 300000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 200000", &a);
    let mut crowd = Crowd::on(&server);
    let mut writer = crowd.waits("WLOCK k b 300000 BLOCK 0");
    lock.refuses("RLOCK w 10000", &a);
    let mut reader = crowd.waits("RLOCK k w 300000 BLOCK 0");
    lock.is(held(&a).reads("a", [&a]).reserved("w", &place));
    // Its place to write is before all of them.
    let mut own = crowd.waits("WLOCK k w 300000 BLOCK 0");
    assert_eq!(crowd.queue("k"), "w write, b write, w read");
    lock.gives("UNLOCK a", 1);
    own.granted();
    reader.granted();
    lock.gives("UNLOCK w ALL", 1);
    writer.granted();
}
