//! UNLOCK: which hold is given back, and what is left.

use support::lock::{free, held, Lock};
use support::Server;

#[test]
fn the_last_hold_takes_the_lock_along() {
    let server = Server::builder().start();
    for (name, hold, unlock) in [
        ("read", "RLOCK a 100000", "UNLOCK a"),
        ("read read", "RLOCK a 100000", "UNLOCK a READ"),
        ("read all", "RLOCK a 100000", "UNLOCK a all"),
        ("write", "WLOCK a 100000", "UNLOCK a"),
        ("write write", "WLOCK a 100000", "UNLOCK a write"),
        ("write all", "WLOCK a 100000", "UNLOCK a ALL"),
    ] {
        let mut lock = Lock::on(&server, name);
        lock.ok(hold);
        lock.gives(unlock, 1);
        lock.is(free());
        lock.not_held(unlock, "is free");
    }
}

#[test]
fn a_read_hold_goes_highest_number_first() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let first = lock.ok("RLOCK a 100000");
    let second = lock.ok("RLOCK a 300000");
    let third = lock.ok("RLOCK a 200000");
    lock.is(held(&second).reads("a", [&first, &second, &third]));
    lock.gives("UNLOCK a READ", 0);
    lock.is(held(&second).reads("a", [&first, &second]));
    // The hash then ends with the latest that is left.
    lock.gives("UNLOCK a", 0);
    lock.is(held(&first).reads("a", [&first]));
    lock.gives("UNLOCK a", 1);
    lock.is(free());
}

#[test]
fn an_owner_s_last_read_hold_takes_the_field_along() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 200000");
    let b = lock.ok("RLOCK b 100000");
    let b2 = lock.ok("RLOCK b 50000");
    let c = lock.ok("RLOCK c 150000");
    lock.is(held(&a).reads("a", [&a]).reads("b", [&b, &b2]).reads("c", [&c]));
    lock.gives("UNLOCK a", 0);
    lock.is(held(&c).reads("b", [&b, &b2]).reads("c", [&c]));
    lock.gives("UNLOCK c", 0);
    lock.is(held(&b).reads("b", [&b, &b2]));
    // What another reader has is not the owner's to give.
    lock.not_held("UNLOCK a", "held by others, in read mode");
    lock.not_held("UNLOCK c ALL", "held by others, in read mode");
    lock.is(held(&b).reads("b", [&b, &b2]));
}

#[test]
fn a_read_release_lengthens_a_hash_that_somebody_shortened() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let first = lock.ok("RLOCK a 200000");
    lock.ok("RLOCK a 100000");
    let b = lock.ok("RLOCK b 300000");
    let b2 = lock.ok("RLOCK b 60000");
    lock.expire(50_000);
    lock.gives("UNLOCK a", 0);
    lock.is(held(&b).reads("a", [&first]).reads("b", [&b, &b2]));
}

#[test]
fn a_read_release_in_write_mode_never_shortens_the_write_lease() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 100000");
    let short = lock.ok("RLOCK a 50000");
    lock.ok("RLOCK a 20000");
    lock.gives("UNLOCK a READ", 0);
    lock.is(held(&write).writes("a", 1).reads("a", [&short]));
    lock.gives("UNLOCK a READ", 0);
    lock.is(held(&write).writes("a", 1));
    // What a read hold has lengthened stays long.
    let long = lock.ok("RLOCK a 200000");
    lock.ok("RLOCK a 50000");
    lock.gives("UNLOCK a READ", 0);
    lock.is(held(&long).writes("a", 1).reads("a", [&long]));
    lock.gives("UNLOCK a READ", 0);
    lock.is(held(&long).writes("a", 1));
}

#[test]
fn without_a_word_a_read_hold_goes_before_a_write_hold() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 200000");
    lock.ok("WLOCK a 1000");
    let read = lock.ok("RLOCK a 100000");
    lock.ok("RLOCK a 50000");
    lock.gives("UNLOCK a", 0);
    lock.is(held(&write).writes("a", 2).reads("a", [&read]));
    lock.gives("UNLOCK a", 0);
    lock.is(held(&write).writes("a", 2));
    lock.gives("UNLOCK a", 0);
    lock.is(held(&write).writes("a", 1));
    lock.gives("UNLOCK a", 1);
    lock.is(free());
}

#[test]
fn a_write_hold_with_count_left_leaves_the_time() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("WLOCK a 100000");
    lock.ok("WLOCK a 200000");
    let write = lock.ok("WLOCK a 300000");
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&write).writes("a", 2));
    // Also what somebody else gave it.
    let longer = lock.expire(500_000);
    lock.gives("UNLOCK a", 0);
    lock.is(held(&longer).writes("a", 1));
    lock.gives("UNLOCK a", 1);
    lock.is(free());
}

#[test]
fn the_last_write_hold_leaves_its_owner_s_reads() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("WLOCK a 500000");
    let first = lock.ok("RLOCK a 200000");
    let second = lock.ok("RLOCK a 100000");
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&first).reads("a", [&first, &second]));
    // Others may read again.
    let b = lock.ok("RLOCK b 300000");
    lock.is(held(&b).reads("a", [&first, &second]).reads("b", [&b]));
    lock.not_held("UNLOCK a WRITE", "in the other mode (read)");

    // Somebody shortened the hash: it is lengthened.
    let mut lock = Lock::on(&server, "shortened");
    lock.ok("WLOCK a 500000");
    let read = lock.ok("RLOCK a 200000");
    lock.expire(50_000);
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&read).reads("a", [&read]));
}

#[test]
fn all_gives_back_every_hold_of_the_owner_and_no_other() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "write");
    lock.ok("WLOCK a 100000");
    lock.ok("WLOCK a 100000");
    lock.ok("RLOCK a 100000");
    lock.ok("RLOCK a 100000");
    lock.gives("UNLOCK a ALL", 1);
    lock.is(free());

    let mut lock = Lock::on(&server, "read");
    lock.ok("RLOCK a 300000");
    lock.ok("RLOCK a 400000");
    let b = lock.ok("RLOCK b 200000");
    lock.ok("RLOCK a 500000");
    lock.gives("UNLOCK a ALL", 0);
    lock.is(held(&b).reads("b", [&b]));
    lock.gives("UNLOCK b ALL", 1);
    lock.is(free());
}

#[test]
fn an_owner_without_such_a_hold_learns_why() {
    let server = Server::builder().start();
    let words = ["", " READ", " WRITE", " ALL"];
    let mut lock = Lock::on(&server, "k");
    for word in words {
        lock.not_held(&format!("UNLOCK a{word}"), "the lock is free");
    }
    lock.is(free());

    let write = lock.ok("WLOCK a 100000");
    for word in words {
        lock.not_held(&format!("UNLOCK b{word}"), "held by others, in write mode");
    }
    lock.not_held("UNLOCK a READ", "in the other mode (write)");
    lock.is(held(&write).writes("a", 1));
    lock.gives("UNLOCK a", 1);

    let read = lock.ok("RLOCK a 100000");
    for word in words {
        lock.not_held(&format!("UNLOCK b{word}"), "held by others, in read mode");
    }
    lock.not_held("UNLOCK a WRITE", "in the other mode (read)");
    lock.is(held(&read).reads("a", [&read]));
    let other = lock.ok("RLOCK b 50000");
    lock.not_held("UNLOCK a WRITE", "in the other mode (read)");
    lock.is(held(&read).reads("a", [&read]).reads("b", [&other]));
}

#[test]
fn a_reservation_stands_when_the_lock_is_given_back() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 1000 RESERVE 200000", &a);
    lock.gives("UNLOCK a", 1);
    lock.is(free().reserved("w", &place));
    lock.not_held("UNLOCK w", "the lock is free");
    lock.is(free().reserved("w", &place));
}
