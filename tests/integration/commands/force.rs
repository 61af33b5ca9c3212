//! FORCEUNLOCK: for operators.

use support::lock::{free, held, whoever_meets_it, Lease, Lock};
use support::{assert_ok, call, Server};

/// A read-held lock with all that can belong to one: holds of two owners, a
/// reservation and a fencing token.
fn read_held(server: &Server, name: &str) -> Lock {
    let mut lock = Lock::on(server, name);
    let a = lock.ok("RLOCK a 300000");
    lock.ok("RLOCK b 100000");
    lock.ok("RLOCK b 200000");
    lock.reserves("WLOCK w 1000 RESERVE 100000", &a);
    let fence = lock.derived("rwlock_fence");
    assert_ok(call!(lock.con, "SET", fence, 7));
    lock
}

#[test]
fn everything_goes_but_the_fence() {
    let server = Server::builder().start();
    let gone = || free().string("rwlock_fence", "7", &Lease::never());
    for (name, command) in [("any", "FORCEUNLOCK"), ("read", "FORCEUNLOCK read")] {
        let mut lock = read_held(&server, name);
        lock.gives(command, 1);
        lock.is(gone());
        lock.gives(command, 0);
        lock.is(gone());
        // It is nobody's now, and a newcomer's at once.
        lock.not_held("UNLOCK a", "the lock is free");
        let write = lock.ok("WLOCK c 100000");
        lock.is(held(&write).writes("c", 1).string("rwlock_fence", "7", &Lease::never()));
    }
    for (name, command) in [("write", "FORCEUNLOCK"), ("write write", "FORCEUNLOCK WRITE")] {
        let mut lock = Lock::on(&server, name);
        lock.ok("WLOCK a 100000");
        lock.ok("WLOCK a 100000");
        let read = lock.ok("RLOCK a 200000");
        lock.reserves("WLOCK w 1000 RESERVE 100000", &read);
        lock.gives(command, 1);
        lock.is(free());
    }
}

#[test]
fn with_a_word_only_a_lock_in_that_mode_goes() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let read = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 1000 RESERVE 100000", &read);
    lock.gives("FORCEUNLOCK WRITE", 0);
    lock.is(held(&read).reads("a", [&read]).reserved("w", &place));
    lock.gives("FORCEUNLOCK READ", 1);

    lock.ok("WLOCK a 100000");
    let read = lock.ok("RLOCK a 200000");
    let place = lock.reserves("WLOCK w 1000 RESERVE 100000", &read);
    lock.gives("FORCEUNLOCK READ", 0);
    lock.is(held(&read).writes("a", 1).reads("a", [&read]).reserved("w", &place));
    lock.gives("FORCEUNLOCK WRITE", 1);
    lock.is(free());
}

#[test]
fn a_reservation_alone_goes_too() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    let a = lock.ok("RLOCK a 100000");
    let place = lock.reserves("WLOCK w 1000 RESERVE 100000", &a);
    lock.gives("UNLOCK a", 1);
    // It is in neither mode.
    lock.gives("FORCEUNLOCK READ", 0);
    lock.gives("FORCEUNLOCK WRITE", 0);
    lock.is(free().reserved("w", &place));
    lock.gives("FORCEUNLOCK", 1);
    lock.is(free());
    lock.ok("RLOCK b 100000");
}

#[test]
fn a_lock_without_expiry_goes_with_its_lapsed_holds() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 100000");
        lock.ok("RLOCK b 100000");
        lock.ok("RLOCK b 100000");
        lock.persist();
        lock.persist_timeout("b", 2);
        lock.lapse("a", [1]);
        lock.lapse("b", [1]);
        lock.gives("FORCEUNLOCK READ", 1);
        lock.is(free());
    });
}

#[test]
fn there_is_nothing_to_force() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "never held");
    for command in ["FORCEUNLOCK", "FORCEUNLOCK READ", "FORCEUNLOCK WRITE"] {
        lock.gives(command, 0);
        lock.is(free());
    }
}

#[test]
fn a_lock_with_lapsed_holds_only_is_no_lock_to_force() {
    whoever_meets_it(|lock_on| {
        // What is left of it goes all the same.
        for (name, command) in [("any", "FORCEUNLOCK"), ("read", "FORCEUNLOCK READ")] {
            let mut lock = lock_on(name);
            lock.ok("RLOCK a 100000");
            lock.lapse("a", [1]);
            lock.gives(command, 0);
            lock.is(free());
        }
    });
}
