//! RENEW: an owner's holds live longer, nobody else's do.

use support::lock::{free, held, whoever_meets_it, Lock};
use support::Server;

#[test]
fn every_hold_of_the_owner_is_lengthened_and_the_hash_follows() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("RLOCK a 100000");
    let second = lock.ok("RLOCK a 300000");
    lock.ok("RLOCK a 50000");
    // Between the others' ends: only the shorter ones become longer.
    let renewed = lock.ok("RENEW a 200000");
    lock.is(held(&second).reads("a", [&renewed, &second, &renewed]));
    // Beyond all of them.
    let renewed = lock.ok("RENEW a 400000");
    lock.is(held(&renewed).reads("a", [&renewed, &renewed, &renewed]));
    // Below all of them.
    lock.ok("RENEW a 1");
    lock.is(held(&renewed).reads("a", [&renewed, &renewed, &renewed]));
}

#[test]
fn other_owners_holds_are_left_alone() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let b = lock.ok("RLOCK b 50000");
    let place = lock.reserves("WLOCK w 1 RESERVE 20000", &a);
    let renewed = lock.ok("RENEW a 200000");
    lock.is(held(&renewed).reads("a", [&renewed]).reads("b", [&b]).reserved("w", &place));
    // The hash lasts as long as another's hold does.
    let renewed_b = lock.ok("RENEW b 90000");
    lock.is(held(&renewed).reads("a", [&renewed]).reads("b", [&renewed_b]).reserved("w", &place));
}

#[test]
fn a_write_hold_is_renewed_with_the_reads_inside_it() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 100000");
    lock.ok("WLOCK a 1000");
    lock.ok("RENEW a 50000");
    lock.is(held(&write).writes("a", 2));
    let renewed = lock.ok("RENEW a 200000");
    lock.is(held(&renewed).writes("a", 2));
    lock.ok("RLOCK a 10000");
    let read = lock.ok("RENEW a 150000");
    lock.is(held(&renewed).writes("a", 2).reads("a", [&read]));
    let both = lock.ok("RENEW a 300000");
    lock.is(held(&both).writes("a", 2).reads("a", [&both]));
}

#[test]
fn a_hash_that_somebody_shortened_follows_the_holds() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let read = lock.ok("RLOCK a 200000");
    lock.expire(50_000);
    lock.ok("RENEW a 100000");
    lock.is(held(&read).reads("a", [&read]));
}

#[test]
fn nothing_is_created() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.not_held("RENEW a 100000", "the lock is free");
    lock.is(free());
    let write = lock.ok("WLOCK a 100000");
    lock.not_held("RENEW b 200000", "held by others, in write mode");
    lock.is(held(&write).writes("a", 1));
    lock.gives("UNLOCK a", 1);
    let read = lock.ok("RLOCK a 100000");
    lock.not_held("RENEW b 200000", "held by others, in read mode");
    lock.is(held(&read).reads("a", [&read]));
}

#[test]
fn a_lapsed_hold_is_not_revived() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("some");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [2]);
        let renewed = lock.ok("RENEW a 200000");
        lock.is(held(&renewed).reads("a", [&renewed, &renewed]));

        let mut lock = lock_on("all");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.not_held("RENEW a 200000", "the lock is free");
        lock.is(free());

        let mut lock = lock_on("beside others");
        let b = lock.ok("RLOCK b 300000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.not_held("RENEW a 200000", "held by others, in read mode");
        lock.is(held(&b).reads("b", [&b]));

        let mut lock = lock_on("write");
        let write = lock.ok("WLOCK a 20");
        lock.pass(&write);
        lock.not_held("RENEW a 200000", "the lock is free");
        lock.is(free());

        let mut lock = lock_on("write around a lapsed read");
        lock.ok("WLOCK a 100000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        let renewed = lock.ok("RENEW a 200000");
        lock.is(held(&renewed).writes("a", 1));
    });
}
