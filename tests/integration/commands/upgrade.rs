//! UPGRADE: from read to write with no gap.

use support::lock::{free, held, whoever_meets_it, Lease, Lock};
use support::Server;

#[test]
fn the_only_reader_becomes_the_writer_and_keeps_its_reads() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let first = lock.ok("RLOCK a 100000");
    let second = lock.ok("RLOCK a 50000");
    let write = lock.ok("UPGRADE a 200000");
    lock.is(held(&write).writes("a", 1).reads("a", [&first, &second]));
    lock.refuses("RLOCK b 1000", &write);
    // UNLOCK WRITE leads back.
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&first).reads("a", [&first, &second]));
    // The hash is not shortened to the write lease.
    lock.ok("UPGRADE a 10000");
    lock.is(held(&first).writes("a", 1).reads("a", [&first, &second]));
}

#[test]
fn other_readers_stand_in_the_way() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let b = lock.ok("RLOCK b 200000");
    lock.refuses("UPGRADE a 300000", &b);
    lock.refuses("UPGRADE b 300000", &b);
    lock.is(held(&b).reads("a", [&a]).reads("b", [&b]));
    lock.persist();
    lock.refuses("UPGRADE a 300000", &Lease::never());
    lock.gives("UNLOCK b", 0);
    lock.ok("UPGRADE a 300000");
    lock.is(held(&Lease::never()).writes("a", 1).reads("a", [&a]));
}

#[test]
fn lapsed_readers_do_not_stand_in_the_way() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("all");
        let a = lock.ok("RLOCK a 100000");
        lock.ok("RLOCK b 300000");
        lock.ok("RLOCK c 300000");
        lock.ok("RLOCK c 300000");
        lock.lapse("b", [1]);
        lock.lapse("c", [1, 2]);
        let write = lock.ok("UPGRADE a 200000");
        // Nor does what they left on the hash count as the write lease.
        lock.is(held(&write).writes("a", 1).reads("a", [&a]));

        let mut lock = lock_on("not all");
        let a = lock.ok("RLOCK a 100000");
        lock.ok("RLOCK b 200000");
        let second = lock.ok("RLOCK b 300000");
        lock.lapse("b", [1]);
        lock.refuses("UPGRADE a 400000", &second);
        lock.is(held(&second).reads("a", [&a]).reads("b", [&second]));
    });
}

#[test]
fn a_writer_that_reads_gets_another_write_hold() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 200000");
    let read = lock.ok("RLOCK a 100000");
    lock.ok("UPGRADE a 50000");
    lock.is(held(&write).writes("a", 2).reads("a", [&read]));
    let longer = lock.ok("UPGRADE a 300000");
    lock.is(held(&longer).writes("a", 3).reads("a", [&read]));
}

#[test]
fn an_owner_that_does_not_read_has_nothing_to_upgrade() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.not_held("UPGRADE a 100000", "the lock is free");
    lock.is(free());
    let read = lock.ok("RLOCK b 100000");
    lock.not_held("UPGRADE a 100000", "held by others, in read mode");
    lock.is(held(&read).reads("b", [&read]));
    lock.gives("UNLOCK b", 1);
    let write = lock.ok("WLOCK b 100000");
    lock.not_held("UPGRADE a 200000", "held by others, in write mode");
    lock.not_held("UPGRADE b 200000", "in the other mode (write)");
    lock.is(held(&write).writes("b", 1));
}

#[test]
fn a_lapsed_read_hold_is_nothing_to_upgrade() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("alone");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.not_held("UPGRADE a 200000", "the lock is free");
        lock.is(free());

        let mut lock = lock_on("beside others");
        lock.ok("RLOCK a 100000");
        let b = lock.ok("RLOCK b 200000");
        lock.lapse("a", [1]);
        lock.not_held("UPGRADE a 300000", "held by others, in read mode");
        lock.is(held(&b).reads("b", [&b]));

        let mut lock = lock_on("writing");
        let write = lock.ok("WLOCK a 200000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.not_held("UPGRADE a 300000", "in the other mode (write)");
        lock.is(held(&write).writes("a", 1));

        let mut lock = lock_on("some live");
        lock.ok("RLOCK a 100000");
        let second = lock.ok("RLOCK a 200000");
        lock.lapse("a", [1]);
        let write = lock.ok("UPGRADE a 300000");
        lock.is(held(&write).writes("a", 1).reads("a", [&second]));
    });
}
