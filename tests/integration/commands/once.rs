//! ONCE: a request that may be sent twice.

use support::lock::{held, whoever_meets_it, Lock};
use support::Server;

#[test]
fn a_read_once_is_taken_once_and_lengthens_the_highest_hold() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let first = lock.ok("RLOCK a 100000 ONCE");
    lock.is(held(&first).reads("a", [&first]));
    // A retry with a shorter lease changes nothing.
    lock.ok("RLOCK a 50000 ONCE");
    lock.is(held(&first).reads("a", [&first]));

    let second = lock.ok("RLOCK a 20000");
    lock.is(held(&first).reads("a", [&first, &second]));
    let second = lock.ok("RLOCK a 60000 ONCE");
    lock.is(held(&first).reads("a", [&first, &second]));
    let second = lock.ok("RLOCK a 300000 once");
    lock.is(held(&second).reads("a", [&first, &second]));

    // Another owner's hold is not its own.
    let b = lock.ok("RLOCK b 10000 ONCE");
    lock.is(held(&second).reads("a", [&first, &second]).reads("b", [&b]));
}

#[test]
fn a_write_once_is_taken_once_and_lengthens_the_lock() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 100000 ONCE");
    lock.is(held(&write).writes("a", 1));
    lock.ok("WLOCK a 50000 ONCE");
    lock.is(held(&write).writes("a", 1));
    let write = lock.ok("WLOCK a 200000 Once");
    lock.is(held(&write).writes("a", 1));
    lock.refuses("WLOCK b 300000 ONCE", &write);
    lock.ok("WLOCK a 1000");
    lock.ok("WLOCK a 1000 ONCE");
    lock.is(held(&write).writes("a", 2));
}

#[test]
fn once_counts_holds_of_the_same_kind_only() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("WLOCK a 100000");
    let read = lock.ok("RLOCK a 200000 ONCE");
    lock.is(held(&read).writes("a", 1).reads("a", [&read]));
    let longer = lock.ok("RLOCK a 300000 ONCE");
    lock.is(held(&longer).writes("a", 1).reads("a", [&longer]));
    lock.ok("WLOCK a 1000 ONCE");
    lock.is(held(&longer).writes("a", 1).reads("a", [&longer]));
}

#[test]
fn once_takes_lapsed_holds_for_none() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        let b = lock.ok("RLOCK b 300000");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 200000");
        // What was the highest is gone: the one below it is lengthened.
        lock.lapse("a", [2]);
        let first = lock.ok("RLOCK a 150000 ONCE");
        lock.is(held(&b).reads("b", [&b]).reads("a", [&first]));
        // None is left: there is a new one.
        lock.lapse("a", [1]);
        let fresh = lock.ok("RLOCK a 10000 ONCE");
        lock.is(held(&b).reads("b", [&b]).reads("a", [&fresh]));
    });
}

#[test]
fn an_upgrade_that_is_sent_again_counts_once() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let read = lock.ok("RLOCK a 50000");
    let write = lock.ok("UPGRADE a 60000 ONCE");
    lock.is(held(&write).writes("a", 1).reads("a", [&read]));
    let write = lock.ok("UPGRADE a 90000 ONCE");
    lock.is(held(&write).writes("a", 1).reads("a", [&read]));
    lock.ok("UPGRADE a 10000 ONCE BLOCK 0");
    lock.is(held(&write).writes("a", 1).reads("a", [&read]));
    lock.ok("UPGRADE a 10000");
    lock.is(held(&write).writes("a", 2).reads("a", [&read]));
    // It needs the read hold all the same.
    lock.gives("UNLOCK a READ", 0);
    lock.not_held("UPGRADE a 10000 ONCE", "in the other mode (write)");
}
