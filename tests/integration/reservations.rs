//! RESERVE: the place of a writer that polls.

use crate::checker::{free, held, whoever_meets_it, Lease, Lock};
use crate::harness::Server;

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
    lock.refuses("WLOCK x 50000 RESERVE 300000", &a);
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
    lock.gives("UNLOCK a ALL", 1);
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
        let read = lock.ok("RLOCK a 100000");
        let place = lock.reserves("WLOCK a 10000 RESERVE 200000", &read);
        lock.ok("UPGRADE a 50000");
        // Only a granted WLOCK does.
        lock.is(held(&read).writes("a", 1).reads("a", [&read]).reserved("a", &place));
        lock.ok(again);
        let writes = if again.ends_with("ONCE") { 1 } else { 2 };
        lock.is(held(&read).writes("a", writes).reads("a", [&read]));
    }
}

#[test]
fn a_reservation_keeps_new_readers_from_a_read_held_lock() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 50000 RESERVE 500000", &a);
    // The integer tells of the hash: that ends at the latest with its holders.
    lock.refuses("RLOCK b 10000", &a);
    lock.refuses("RLOCK b 10000 ONCE", &a);
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
        lock.refuses("RLOCK a 10000", &b);
        lock.is(held(&b).reads("b", [&b]).reserved("w", &place));
        // The last one as well: the lock is free but for the reservation.
        lock.lapse("b", [1]);
        lock.refuses("RLOCK b 10000", &place);
        lock.is(free().reserved("w", &place));
    });
}
