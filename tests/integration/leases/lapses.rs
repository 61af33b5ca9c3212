//! Lapsed holds do not count, and go: by themselves, or with the command that
//! meets them first.

use support::lock::{free, held, whoever_meets_it, Lease, Lock};
use support::observe::run;
use support::{assert_error, assert_ok, call, int, wait_until, Server};

/// Three read holds of `a`, of which the one with this number has lapsed, and
/// the leases of the other two.
fn one_of_three_lapsed(lock_on: &dyn Fn(&str) -> Lock, lapsed: usize) -> (Lock, Lease, Lease) {
    let mut lock = lock_on(&format!("number {lapsed}"));
    let mut leases: Vec<Lease> = (1..=3)
        .map(|number| {
            let lease = if number == lapsed { 50_000 } else { 100_000 * number as i64 };
            lock.ok(&format!("RLOCK a {lease}"))
        })
        .collect();
    lock.lapse("a", [lapsed]);
    leases.remove(lapsed - 1);
    let second = leases.remove(1);
    (lock, leases.remove(0), second)
}

#[test]
fn the_holds_above_a_lapsed_one_move_down() {
    whoever_meets_it(|lock_on| {
        for lapsed in 1..=3 {
            // RENEW changes nothing else here.
            let (mut lock, first, second) = one_of_three_lapsed(lock_on, lapsed);
            lock.ok("RENEW a 1");
            lock.is(held(&second).reads("a", [&first, &second]));

            // A new hold gets the number after them.
            call!(lock.con, "FLUSHALL").expect("start again");
            let (mut lock, first, second) = one_of_three_lapsed(lock_on, lapsed);
            let third = lock.ok("RLOCK a 400000");
            lock.is(held(&third).reads("a", [&first, &second, &third]));

            // The highest live one is given back.
            call!(lock.con, "FLUSHALL").expect("start again");
            let (mut lock, first, _) = one_of_three_lapsed(lock_on, lapsed);
            lock.gives("UNLOCK a", 0);
            lock.is(held(&first).reads("a", [&first]));
            lock.gives("UNLOCK a", 1);
            lock.is(free());
        }
    });
}

#[test]
fn several_lapses_are_met_at_once() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        let leases: Vec<Lease> =
            (1..=6).map(|number| lock.ok(&format!("RLOCK a {number}00000"))).collect();
        lock.lapse("a", [1, 3, 4]);
        lock.ok("RENEW a 1");
        lock.is(held(&leases[5]).reads("a", [&leases[1], &leases[4], &leases[5]]));
    });
}

#[test]
fn an_owner_without_live_holds_loses_its_field() {
    whoever_meets_it(|lock_on| {
        for command in
            ["UNLOCK a", "UNLOCK a READ", "UNLOCK a ALL", "RENEW a 1000", "UPGRADE a 1000"]
        {
            let mut lock = lock_on(command);
            let b = lock.ok("RLOCK b 300000");
            lock.ok("RLOCK a 100000");
            lock.ok("RLOCK a 100000");
            lock.lapse("a", [1, 2]);
            lock.not_held(command, "held by others, in read mode");
            lock.is(held(&b).reads("b", [&b]));
            // It is a newcomer now, with number 1.
            let again = lock.ok("RLOCK a 200000");
            lock.is(held(&b).reads("b", [&b]).reads("a", [&again]));
        }
    });
}

#[test]
fn lapsed_holds_of_others_go_when_they_are_met() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        lock.ok("RLOCK b 50000");
        let c = lock.ok("RLOCK c 200000");
        lock.ok("RLOCK c 50000");
        let c3 = lock.ok("RLOCK c 150000");
        let a = lock.ok("RLOCK a 100000");
        lock.ok("RLOCK a 400000");
        lock.lapse("b", [1]);
        lock.lapse("c", [2]);
        // To know the latest end, UNLOCK looks at all holds.
        lock.gives("UNLOCK a", 0);
        lock.is(held(&c).reads("c", [&c, &c3]).reads("a", [&a]));
        lock.lapse("c", [1, 2]);
        lock.gives("UNLOCK a", 1);
        lock.is(free());
    });
}

#[test]
fn a_lock_with_lapsed_holds_only_is_free_though_its_hash_lives() {
    whoever_meets_it(|lock_on| {
        let abandoned = |name: &str| {
            let mut lock = lock_on(name);
            lock.ok("RLOCK a 300000");
            lock.ok("RLOCK a 300000");
            lock.ok("RLOCK b 500000");
            lock.lapse("a", [1, 2]);
            lock.lapse("b", [1]);
            lock
        };
        // Its time is not the next one's.
        for (owner, again) in [("a", "its holder"), ("c", "another")] {
            let mut lock = abandoned(&format!("read by {again}"));
            let read = lock.ok(&format!("RLOCK {owner} 100000"));
            lock.is(held(&read).reads(owner, [&read]));
            let mut lock = abandoned(&format!("written by {again}"));
            let write = lock.ok(&format!("WLOCK {owner} 100000"));
            lock.is(held(&write).writes(owner, 1));
        }
        for command in ["UNLOCK a", "UNLOCK c", "RENEW b 1", "UPGRADE a 1", "DOWNGRADE c 1"] {
            let mut lock = abandoned(command);
            lock.not_held(command, "the lock is free");
            lock.is(free());
        }
    });
}

#[test]
fn lapsed_reads_inside_a_write_hold_are_not_given_back() {
    whoever_meets_it(|lock_on| {
        let mut lock = lock_on("k");
        let write = lock.ok("WLOCK a 300000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.not_held("UNLOCK a READ", "in the other mode (write)");
        lock.is(held(&write).writes("a", 1));

        let mut lock = lock_on("no word");
        lock.ok("WLOCK a 300000");
        lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.gives("UNLOCK a", 1);
        lock.is(free());

        let mut lock = lock_on("one of two");
        lock.ok("WLOCK a 300000");
        lock.ok("RLOCK a 50000");
        let second = lock.ok("RLOCK a 100000");
        lock.lapse("a", [1]);
        lock.gives("UNLOCK a WRITE", 0);
        lock.is(held(&second).reads("a", [&second]));
    });
}

#[test]
fn lapsed_holds_go_by_themselves() {
    let server = Server::builder().start();
    // What goes is removed by the module, not by the server's own search.
    let mut lock = Lock::on(&server, "read");
    assert_ok(call!(lock.con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    // In an order that is not that of their ends, the hash's among them.
    lock.ok("RLOCK a 300");
    let a = lock.ok("RLOCK a 100000");
    lock.ok("RLOCK a 100");
    lock.ok("RLOCK b 200");
    let mut write = Lock::on(&server, "write");
    write.ok("WLOCK c 400");
    write.ok("RLOCK c 100");
    let mut last = Lock::on(&server, "last");
    last.ok("RLOCK d 300");
    last.ok("RLOCK e 800");
    // DBSIZE counts keys and looks at none. The hash and the timeout key of what
    // is left, and a timeout key that ended together with its hash: with that
    // gone it means nothing, and is the server's to delete.
    wait_until("all but one have gone", || int(call!(lock.con, "DBSIZE")) == 3);
    lock.is(held(&a).reads("a", [&a]));
    write.is(free());
    last.is(free());
}

/// The timeout keys of its readers have stayed where they were.
#[test]
fn a_lock_that_was_moved_away_and_back_is_lengthened_to_its_readers_as_before() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for [away, back] in [["MOVE k 1", "MOVE k 0"], ["RENAME k other", "RENAME other k"]] {
        assert_ok(run(&mut con, "RWLOCK.RLOCK k a 100000"));
        run(&mut con, away).expect("move it");
        // What is to be done about that is done.
        assert_error(run(&mut con, "RWLOCK.RENEW x nobody 1000"), "NOTHELD");
        if back.starts_with("MOVE") {
            assert_ok(run(&mut con, "SELECT 1"));
        }
        run(&mut con, back).expect("move it back");
        assert_ok(run(&mut con, "SELECT 0"));
        assert_eq!(int(run(&mut con, "PEXPIRE k 30000")), 1, "{back}");
        wait_until(back, || int(run(&mut con, "PTTL k")) > 90_000);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    }
}

/// A lock that came from another name has left its timeout keys there.
#[test]
fn the_first_command_on_a_moved_lock_removes_what_has_lapsed_in_it() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK k a 100000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK k a 100000"));
    run(&mut con, "RENAME k other").expect("move it");
    assert!(int(run(&mut con, "RWLOCK.WLOCK other b 1000")) > 0);
    assert_eq!(int(run(&mut con, "HEXISTS other a")), 0);
    assert_eq!(int(run(&mut con, "HEXISTS other a:write")), 1);
}

#[test]
fn a_shortened_lease_ends_on_time_by_itself() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    assert_ok(call!(lock.con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    lock.ok("RLOCK a 100000");
    let b = lock.ok("RLOCK b 200000");
    lock.expire_timeout("a", 1, 20);
    wait_until("the hold of a goes", || int(call!(lock.con, "DBSIZE")) == 2);
    lock.is(held(&b).reads("b", [&b]));
    lock.gives("UNLOCK b", 1);
    lock.ok("WLOCK a 100000");
    lock.expire(20);
    wait_until("the lock goes", || int(call!(lock.con, "DBSIZE")) == 0);
}

#[test]
fn a_lease_ends_on_time_though_the_server_deletes_nothing() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "read");
    assert_ok(call!(lock.con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    lock.ok("RLOCK a 100000");
    let first = lock.expire_timeout("a", 1, 20);
    let second = lock.ok("RLOCK a 200000");
    lock.ok("RLOCK b 300000");
    let b = lock.expire_timeout("b", 1, 20);
    lock.pass(&first);
    lock.pass(&b);
    lock.ok("UPGRADE a 150000");
    lock.is(held(&second).writes("a", 1).reads("a", [&second]));

    let mut lock = Lock::on(&server, "write");
    let write = lock.ok("WLOCK a 20");
    lock.pass(&write);
    lock.not_held("UNLOCK a", "the lock is free");
    let write = lock.ok("WLOCK b 100000");
    lock.is(held(&write).writes("b", 1));
    // Whoever lost it does not take it from the next one.
    lock.not_held("UNLOCK a ALL", "held by others, in write mode");
    lock.is(held(&write).writes("b", 1));
}

#[test]
fn what_lengthens_the_hash_lengthens_the_write_hold_until_it_ends() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("WLOCK a 10000");
    let longer = lock.expire(400_000);
    let read = lock.ok("RLOCK a 100000");
    lock.refuses("WLOCK b 1000", &longer);
    lock.is(held(&longer).writes("a", 1).reads("a", [&read]));
    lock.gives("UNLOCK a WRITE", 0);
    lock.is(held(&read).reads("a", [&read]));
}

#[test]
fn timeout_keys_without_a_hash_or_above_the_count_mean_nothing() {
    let server = Server::builder().start();
    let mut lock = Lock::on(&server, "k");
    lock.ok("RLOCK a 500000");
    lock.ok("RLOCK a 500000");
    let third = lock.ok("RLOCK a 500000");
    assert_eq!(int(call!(lock.con, "DEL", "k")), 1);
    lock.not_held("UNLOCK a", "the lock is free");
    lock.not_held("RENEW a 1000", "the lock is free");
    lock.not_held("UPGRADE a 1000", "the lock is free");
    // The next holds write over them.
    let first = lock.ok("RLOCK a 10000");
    let second = lock.ok("RLOCK a 20000");
    lock.is(held(&second).reads("a", [&first, &second]).leftover("a", 3, &third));
    // And one above the count is not renewed nor counted.
    let renewed = lock.ok("RENEW a 30000");
    lock.is(held(&renewed).reads("a", [&renewed, &renewed]).leftover("a", 3, &third));
    lock.gives("UNLOCK a", 0);
    lock.gives("UNLOCK a", 1);
    let write = lock.ok("WLOCK b 10000");
    lock.is(held(&write).writes("b", 1).leftover("a", 3, &third));
}
