//! RLOCK and WLOCK: who gets a hold, who does not, and what the keys say then.

use support::lock::{free, held, Lease, Lock};
use support::{assert_error, assert_ok, call, int, Server};

#[test]
fn a_free_lock_is_granted_to_whoever_asks() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "read");
    let a = lock.ok("RLOCK a 100000");
    lock.is(held(&a).reads("a", [&a]));

    let mut lock = Lock::on(&server, "write");
    let a = lock.ok("WLOCK a 100000");
    lock.is(held(&a).writes("a", 1));
}

#[test]
fn readers_share_and_the_hash_ends_with_the_latest() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let b = lock.ok("RLOCK b 200000");
    lock.is(held(&b).reads("a", [&a]).reads("b", [&b]));
    // A shorter lease shortens nothing.
    let c = lock.ok("RLOCK c 50000");
    lock.is(held(&b).reads("a", [&a]).reads("b", [&b]).reads("c", [&c]));
}

#[test]
fn every_read_hold_of_an_owner_has_its_own_number_and_lease() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let first = lock.ok("RLOCK a 100000");
    let second = lock.ok("RLOCK a 50000");
    lock.is(held(&first).reads("a", [&first, &second]));
    let third = lock.ok("RLOCK a 200000");
    lock.is(held(&third).reads("a", [&first, &second, &third]));
    // The others do not matter to it.
    let b = lock.ok("RLOCK b 10000");
    let fourth = lock.ok("RLOCK a 10000");
    lock.is(held(&third).reads("a", [&first, &second, &third, &fourth]).reads("b", [&b]));
}

#[test]
fn only_the_writer_reads_in_write_mode() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 100000");
    lock.refuses("RLOCK b 300000", &write);
    lock.is(held(&write).writes("a", 1));
    // The write lease is the hash's: a read hold lengthens it, never shortens it.
    let short = lock.ok("RLOCK a 50000");
    lock.is(held(&write).writes("a", 1).reads("a", [&short]));
    let long = lock.ok("RLOCK a 200000");
    lock.is(held(&long).writes("a", 1).reads("a", [&short, &long]));
    lock.refuses("RLOCK b 300000", &long);
    lock.refuses("WLOCK b 300000", &long);
    lock.is(held(&long).writes("a", 1).reads("a", [&short, &long]));
}

#[test]
fn only_the_writer_writes_again() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let write = lock.ok("WLOCK a 100000");
    lock.ok("WLOCK a 50000");
    lock.is(held(&write).writes("a", 2));
    let longer = lock.ok("WLOCK a 200000");
    lock.is(held(&longer).writes("a", 3));
    lock.refuses("WLOCK b 300000", &longer);
    lock.is(held(&longer).writes("a", 3));
}

#[test]
fn nobody_writes_while_somebody_reads() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    lock.refuses("WLOCK b 200000", &a);
    // Not even the only reader itself: UPGRADE is the way.
    lock.refuses("WLOCK a 200000", &a);
    lock.refuses("WLOCK a 200000 ONCE", &a);
    lock.is(held(&a).reads("a", [&a]));
    let b = lock.ok("RLOCK b 200000");
    lock.refuses("WLOCK a 300000", &b);
    lock.is(held(&b).reads("a", [&a]).reads("b", [&b]));
}

#[test]
fn a_lock_without_expiry_refuses_with_minus_one() {
    let server = Server::builder().start();
    for (name, hold) in [("read", "RLOCK a 100000"), ("write", "WLOCK a 100000")] {
        let mut lock = Lock::on(&server, name);
        lock.ok(hold);
        lock.persist();
        lock.refuses("WLOCK b 1000", &Lease::never());
        lock.gives("WLOCK b 1000", -1);
    }
    let mut lock = Lock::on(&server, "write");
    lock.gives("RLOCK b 1000", -1);
}

#[test]
fn a_refusal_never_says_zero_while_the_lock_is_held() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    // Asks without a pause until the lease is over, so that some answers fall
    // into its last millisecond.
    for _ in 0..20 {
        assert_ok(lock.send("WLOCK a 4"));
        let granted = loop {
            match lock.send("RLOCK b 100000") {
                Ok(redis::Value::Int(left)) => assert!((1..=4).contains(&left), "{left}"),
                granted => break granted,
            }
        };
        assert_ok(granted);
        lock.gives("UNLOCK b", 1);
    }
}

#[test]
fn the_same_name_in_two_databases_is_two_locks() {
    let server = Server::builder().start();
    let mut zero = Lock::on(&server, "k");
    let mut one = Lock::on(&server, "k");
    assert_ok(call!(one.con, "SELECT", 1));
    let write = zero.ok("WLOCK a 100000");
    let read = one.ok("RLOCK b 200000");
    let place = one.reserves("WLOCK c 1 RESERVE 300000", &read);
    zero.is(held(&write).writes("a", 1));
    one.is(held(&read).reads("b", [&read]).reserved("c", &place));
    zero.not_held("UNLOCK b", "others");
    zero.gives("FORCEUNLOCK", 1);
    zero.is(free());
    one.is(held(&read).reads("b", [&read]).reserved("c", &place));
    one.gives("UNLOCK b", 1);
    one.is(free().reserved("c", &place));
    assert_eq!(int(call!(one.con, "DBSIZE")), 1);
}

#[test]
fn an_error_changes_nothing() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("WLOCK a 100000");
    let read = lock.ok("RLOCK a 200000");
    let place = lock.reserves("WLOCK b 1 RESERVE 300000", &read);
    for name in ["rlock", "wlock", "renew", "upgrade", "downgrade"] {
        let invalid = format!("ERR invalid expire time in 'rwlock.{name}' command");
        for lease in ["0", "-1", "9223372036854775807"] {
            assert_error(lock.send(&format!("{name} a {lease}")), &invalid);
        }
        let arity = format!("ERR wrong number of arguments for 'rwlock.{name}' command");
        assert_error(lock.send(&format!("{name} a")), &arity);
        assert_error(lock.send(&format!("{name} a 500000 WORD")), "ERR");
    }
    for command in [
        "RLOCK a 500000 ONCE ONCE",
        "RLOCK a 500000 RESERVE 500000",
        "WLOCK a 500000 RESERVE",
        "WLOCK b 500000 RESERVE 500000 RESERVE 500000",
        "WLOCK b 500000 RESERVE 500000 ONCE ONCE",
        "UNLOCK a BOTH",
        "UNLOCK a READ WRITE",
        "FORCEUNLOCK ALL",
        "FORCEUNLOCK READ READ",
    ] {
        assert_error(lock.send(command), "ERR");
    }
    for ms in ["0", "-1", "9223372036854775807"] {
        assert_error(
            lock.send(&format!("WLOCK b 500000 RESERVE {ms}")),
            "ERR invalid expire time in 'rwlock.wlock' command",
        );
    }
    lock.is(held(&read).writes("a", 1).reads("a", [&read]).reserved("b", &place));
}
