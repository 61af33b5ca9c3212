//! DOWNGRADE: from write to read with no gap.

use support::lock::{free, held, whoever_meets_it, Lock};
use support::Server;

#[test]
fn a_writer_without_reads_gets_one() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "longer");
    lock.ok("WLOCK a 100000");
    let read = lock.ok("DOWNGRADE a 200000");
    lock.is(held(&read).reads("a", [&read]));

    // The write lease is gone with the write holds, all of them.
    let mut lock = Lock::on(&server, "shorter");
    lock.ok("WLOCK a 300000");
    lock.ok("WLOCK a 300000");
    lock.ok("WLOCK a 300000");
    let read = lock.ok("DOWNGRADE a 20000");
    lock.is(held(&read).reads("a", [&read]));
    lock.not_held("UNLOCK a WRITE", "in the other mode (read)");
    // Others may read again, and nobody writes.
    let b = lock.ok("RLOCK b 100000");
    lock.refuses("WLOCK a 1000", &b);
    lock.is(held(&b).reads("a", [&read]).reads("b", [&b]));
}

#[test]
fn a_writer_with_reads_keeps_them_and_its_highest_is_lengthened() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "longer");
    lock.ok("WLOCK a 300000");
    lock.ok("WLOCK a 300000");
    let first = lock.ok("RLOCK a 100000");
    lock.ok("RLOCK a 20000");
    let second = lock.ok("DOWNGRADE a 50000");
    lock.is(held(&first).reads("a", [&first, &second]));

    let mut lock = Lock::on(&server, "longest");
    lock.ok("WLOCK a 20000");
    let first = lock.ok("RLOCK a 100000");
    lock.ok("RLOCK a 20000");
    let second = lock.ok("DOWNGRADE a 200000");
    lock.is(held(&second).reads("a", [&first, &second]));

    let mut lock = Lock::on(&server, "shorter");
    lock.ok("WLOCK a 300000");
    let first = lock.ok("RLOCK a 20000");
    let second = lock.ok("RLOCK a 100000");
    lock.ok("DOWNGRADE a 1000");
    lock.is(held(&second).reads("a", [&first, &second]));
}

#[test]
fn an_owner_that_does_not_write_has_nothing_to_downgrade() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.not_held("DOWNGRADE a 100000", "the lock is free");
    lock.is(free());
    let write = lock.ok("WLOCK b 100000");
    lock.not_held("DOWNGRADE a 200000", "held by others, in write mode");
    lock.is(held(&write).writes("b", 1));
    let read = lock.ok("DOWNGRADE b 100000");
    lock.not_held("DOWNGRADE b 200000", "in the other mode (read)");
    lock.not_held("DOWNGRADE a 200000", "held by others, in read mode");
    lock.is(held(&read).reads("b", [&read]));
}

#[test]
fn lapsed_holds_are_not_carried_over() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("all reads");
        lock.ok("WLOCK a 300000");
        lock.ok("RLOCK a 300000");
        lock.lapse("a", [1]);
        let read = lock.ok("DOWNGRADE a 20000");
        lock.is(held(&read).reads("a", [&read]));

        let mut lock = lock_on("the highest read");
        lock.ok("WLOCK a 300000");
        let first = lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 200000");
        lock.lapse("a", [2]);
        lock.ok("DOWNGRADE a 20000");
        lock.is(held(&first).reads("a", [&first]));

        let mut lock = lock_on("the lowest read");
        lock.ok("WLOCK a 300000");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 20000");
        lock.lapse("a", [1]);
        let read = lock.ok("DOWNGRADE a 50000");
        lock.is(held(&read).reads("a", [&read]));

        let mut lock = lock_on("the write");
        let write = lock.ok("WLOCK a 20");
        lock.pass(&write);
        lock.not_held("DOWNGRADE a 20000", "the lock is free");
        lock.is(free());
    });
}
