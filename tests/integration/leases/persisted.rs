//! Locks and holds whose expiry somebody took away with PERSIST.

use support::lock::{free, held, whoever_meets_it, Lease, Lock};
use support::observe::run;
use support::wire::ReplicationStream;
use support::{assert_ok, int, Server};

/// A lock without expiry, taken with this command.
fn endless(server: &Server, name: &str, hold: &str) -> (Lock, Lease) {
    let mut lock = Lock::on(server, name);
    let lease = lock.ok(hold);
    lock.persist();
    (lock, lease)
}

#[test]
fn a_read_held_lock_without_expiry_gets_none() {
    let server = Server::builder().start();
    let never = Lease::never();
    let (mut lock, first) = endless(&server, "k", "RLOCK a 100000");
    let b = lock.ok("RLOCK b 200000");
    lock.is(held(&never).reads("a", [&first]).reads("b", [&b]));
    let second = lock.ok("RLOCK a 50000");
    lock.is(held(&never).reads("a", [&first, &second]).reads("b", [&b]));
    let second = lock.ok("RLOCK a 60000 ONCE");
    lock.is(held(&never).reads("a", [&first, &second]).reads("b", [&b]));
    let renewed = lock.ok("RENEW a 150000");
    lock.is(held(&never).reads("a", [&renewed, &renewed]).reads("b", [&b]));
    lock.gives("UNLOCK a", 0);
    lock.is(held(&never).reads("a", [&renewed]).reads("b", [&b]));
    lock.gives("UNLOCK b", 0);
    lock.is(held(&never).reads("a", [&renewed]));
    lock.ok("UPGRADE a 300000");
    lock.is(held(&never).writes("a", 1).reads("a", [&renewed]));
    lock.gives("UNLOCK a ALL", 1);
    lock.is(free());
    // The next lock of this name is another one.
    let fresh = lock.ok("RLOCK a 100000");
    lock.is(held(&fresh).reads("a", [&fresh]));
}

#[test]
fn a_write_held_lock_without_expiry_gets_none() {
    let server = Server::builder().start();
    let never = Lease::never();
    let (mut lock, _) = endless(&server, "k", "WLOCK a 100000");
    lock.ok("WLOCK a 200000");
    lock.ok("WLOCK a 200000 ONCE");
    lock.is(held(&never).writes("a", 2));
    let read = lock.ok("RLOCK a 300000");
    lock.is(held(&never).writes("a", 2).reads("a", [&read]));
    let read = lock.ok("RENEW a 400000");
    lock.is(held(&never).writes("a", 2).reads("a", [&read]));
    lock.ok("UPGRADE a 500000");
    lock.is(held(&never).writes("a", 3).reads("a", [&read]));
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&never).writes("a", 2).reads("a", [&read]));
    lock.ok("DOWNGRADE a 100000");
    lock.is(held(&never).reads("a", [&read]));
}

#[test]
fn it_keeps_none_when_the_last_write_hold_leaves_reads() {
    let server = Server::builder().start();
    let (mut lock, _) = endless(&server, "k", "WLOCK a 100000");
    let read = lock.ok("RLOCK a 300000");
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&Lease::never()).reads("a", [&read]));
}

#[test]
fn its_read_holds_lapse_all_the_same() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        lock.ok("RLOCK a 100000");
        lock.persist();
        let b = lock.ok("RLOCK b 200000");
        lock.lapse("a", [1]);
        lock.not_held("RENEW a 100000", "held by others, in read mode");
        lock.is(held(&Lease::never()).reads("b", [&b]));
        // With the last of them the lock is over: who comes gets a new one.
        lock.lapse("b", [1]);
        let write = lock.ok("WLOCK c 100000");
        lock.is(held(&write).writes("c", 1));
    });
}

#[test]
fn a_read_hold_without_expiry_never_ends_by_itself() {
    let server = Server::builder().start();
    let never = Lease::never();
    let mut lock = Lock::on(&server, "k");
    lock.ok("RLOCK a 10000");
    lock.ok("RLOCK a 200000");
    lock.persist_timeout("a", 1);
    // No lease that is asked for sets one.
    lock.ok("RENEW a 300000");
    lock.gives("UNLOCK a", 0);
    // The hash ends with the latest of what is left, and that is never.
    lock.is(held(&never).reads("a", [&never]));
    assert_ok(lock.send("RLOCK a 300000 ONCE"));
    lock.is(held(&never).reads("a", [&never]));
    lock.ok("UPGRADE a 1000");
    lock.ok("DOWNGRADE a 1000");
    lock.is(held(&never).reads("a", [&never]));
    lock.gives("UNLOCK a", 1);
    lock.is(free());
}

#[test]
fn a_read_hold_without_expiry_keeps_none_when_its_number_changes() {
    let server = Server::builder().start();
    let never = Lease::never();
    let mut lock = Lock::on(&server, "k");
    let mut other = Lock::on(&server, "k");
    // Number 1 is of this connection, and goes first.
    lock.ok("RLOCK a 60000 SESSION");
    other.ok("RLOCK a 60000");
    other.persist_timeout("a", 2);
    let mut stream = ReplicationStream::attach(&server);
    let (reply, sent) = stream.during(&mut lock.con, |con| run(con, "RWLOCK.UNLOCK k a"));
    assert_eq!(int(reply), 0);
    lock.is(held(&never).reads("a", [&never]));
    // Its replicas have the same.
    let words = ["PERSIST", "{k}:a:rwlock_timeout:1"];
    assert!(sent.iter().any(|sent| sent == &words), "{sent:?}");
}
