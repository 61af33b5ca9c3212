//! Leases end on time on an idle primary, whether anybody looks or not.

use std::collections::BTreeSet;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use redis::Connection;

use support::observe::{clock, ends_at, inspect, run, Subscriber};
use support::{
    assert_error, assert_ok, assert_prompt, call, int, list, local_clock, text, wait_until, Client,
    Server,
};

/// How late a lapse may be, in ms.
const LIMIT: i64 = 10;

/// A server that never removes what has expired unless somebody looks at it:
/// whatever goes, the module ends it.
fn server() -> (Server, Connection) {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "DEBUG", "SET-ACTIVE-EXPIRE", 0));
    (server, con)
}

/// How many keys there are. DBSIZE would count timeout keys of which nothing but
/// the server's own clearing is left.
fn keys(con: &mut Connection) -> usize {
    list(call!(con, "KEYS", "*")).len()
}

/// Looks, without touching the lock's timeouts, until it is so; the time.
fn seen_at(mut is_so: impl FnMut() -> bool) -> i64 {
    let deadline = local_clock() + 10_000;
    while !is_so() {
        assert!(local_clock() < deadline, "waited in vain");
        thread::sleep(Duration::from_micros(300));
    }
    local_clock()
}

#[test]
fn a_lapsed_hold_goes_and_is_announced_though_nobody_waits_or_looks() {
    let (server, mut con) = server();
    let mut subscriber = Subscriber::pattern(&server, b"redisson_rwlock:*");
    for (command, message) in [("RLOCK", "0"), ("WLOCK", "1")] {
        let mut late = Vec::new();
        for round in 0..9 {
            assert_ok(run(&mut con, &format!("RWLOCK.{command} lock-{round} a 40")));
            let end = ends_at(&mut con, &format!("lock-{round}"));
            let (channel, payload) = subscriber.message();
            late.push(local_clock() - end - 1);
            assert_eq!(channel, format!("redisson_rwlock:{{lock-{round}}}").into_bytes());
            assert_eq!(payload, message);
            assert_eq!(keys(&mut con), 0);
        }
        assert_prompt(command, LIMIT, &late);
    }
}

#[test]
fn a_lapse_serves_the_queue() {
    let (server, mut con) = server();
    for (held, wanted) in [("WLOCK", "WLOCK"), ("WLOCK", "RLOCK"), ("RLOCK", "WLOCK")] {
        let mut late = Vec::new();
        for round in 0..9 {
            let lock = format!("{held}-{wanted}-{round}");
            assert_ok(run(&mut con, &format!("RWLOCK.{held} {lock} a 60")));
            let end = ends_at(&mut con, &lock);
            let mut waiter = Client::sends(&server, &format!("{wanted} {lock} b 60000 BLOCK 0"));
            waiter.granted();
            late.push(local_clock() - end - 1);
            assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} b"))), 1);
        }
        assert_prompt(&format!("{wanted} after {held}"), LIMIT, &late);
    }
    assert_eq!(keys(&mut con), 0);
}

#[test]
fn readers_lapse_one_by_one() {
    let (_server, mut con) = server();
    let mut late = Vec::new();
    for round in 0..4 {
        let lock = format!("lock-{round}");
        let mut ends = Vec::new();
        for (owner, lease) in [("a", 400), ("b", 200), ("a", 1_000), ("c", 60_000)] {
            assert_ok(run(&mut con, &format!("RWLOCK.RLOCK {lock} {owner} {lease}")));
            ends.push(ends_at(&mut con, &format!("{{{lock}}}:{owner}:rwlock_timeout:1")));
        }
        let [first, b, _, c] = ends[..] else { unreachable!("four") };
        let second = ends_at(&mut con, &format!("{{{lock}}}:a:rwlock_timeout:2"));
        let field = |owner: &str| format!("HEXISTS {lock} {owner}");
        late.push(seen_at(|| int(run(&mut con, &field("b"))) == 0) - b - 1);
        // The count follows, and the timeout of the second hold moves down.
        late.push(seen_at(|| text(run(&mut con, &format!("HGET {lock} a"))) == "1") - first - 1);
        assert_eq!(ends_at(&mut con, &format!("{{{lock}}}:a:rwlock_timeout:1")), second);
        late.push(seen_at(|| int(run(&mut con, &field("a"))) == 0) - second - 1);
        assert_eq!(int(run(&mut con, &field("c"))), 1);
        assert_eq!(ends_at(&mut con, &lock), c);
        assert_eq!(keys(&mut con), 2);
        assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} c"))), 1);
    }
    assert_prompt("a reader among others", LIMIT, &late);
}

#[test]
fn read_holds_inside_a_write_hold_lapse_on_their_own() {
    let (_server, mut con) = server();
    let mut late = Vec::new();
    for round in 0..5 {
        let lock = format!("lock-{round}");
        assert_ok(run(&mut con, &format!("RWLOCK.WLOCK {lock} a 60000")));
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK {lock} a 40")));
        let end = ends_at(&mut con, &format!("{{{lock}}}:a:rwlock_timeout:1"));
        late.push(seen_at(|| int(run(&mut con, &format!("HLEN {lock}"))) == 2) - end - 1);
        assert_error(run(&mut con, &format!("RWLOCK.UNLOCK {lock} a READ")), "NOTHELD");
        assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} a"))), 1);
    }
    assert_prompt("a reader that writes", LIMIT, &late);
}

#[test]
fn a_lease_that_a_slow_transaction_took_ends_on_time() {
    let (server, mut con) = server();
    let mut subscriber = Subscriber::pattern(&server, b"redisson_rwlock:*");
    let mut late = Vec::new();
    for round in 0..5 {
        let lock = format!("lock-{round}");
        // The server's clock stands still while a transaction runs.
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("DEBUG").arg("SLEEP").arg("0.06");
        pipe.cmd("RWLOCK.WLOCK").arg(&lock).arg("a").arg(400);
        pipe.query::<()>(&mut con).expect("a transaction");
        let end = ends_at(&mut con, &lock);
        subscriber.message();
        late.push(local_clock() - end - 1);
        // Twice, so that nothing of this lock is left to do when the next is
        // taken: it would set the timer anew.
        for _ in 0..2 {
            assert_eq!(text(inspect(&mut con, &lock, "mode")), "free");
        }
    }
    assert_prompt("after a slow transaction", LIMIT, &late);
}

/// Locks with these leases are taken, at once or one after the other; by how
/// many ms their ends were announced late.
fn late_ends(server: &Server, con: &mut Connection, leases: &[usize], atomic: bool) -> Vec<i64> {
    let mut subscriber = Subscriber::pattern(server, b"redisson_rwlock:*");
    let mut pipe = redis::pipe();
    for (number, lease) in leases.iter().enumerate() {
        let command = if number % 2 == 0 { "RWLOCK.RLOCK" } else { "RWLOCK.WLOCK" };
        pipe.cmd(command).arg(format!("lock-{number}")).arg("a").arg(*lease).ignore();
    }
    if atomic {
        pipe.atomic();
    }
    pipe.query::<()>(con).expect("take all");
    let mut pipe = redis::pipe();
    for number in 0..leases.len() {
        pipe.cmd("PEXPIRETIME").arg(format!("lock-{number}"));
    }
    let ends: Vec<i64> = pipe.query(con).expect("all ends");
    let distinct = ends.iter().collect::<BTreeSet<_>>().len();
    assert!(if atomic { distinct <= 20 } else { distinct > leases.len() / 2 }, "{distinct}");
    let mut late = vec![None; leases.len()];
    for _ in leases {
        let (channel, payload) = subscriber.message();
        let now = local_clock();
        let channel = String::from_utf8(channel).expect("a channel");
        let number = channel.strip_prefix("redisson_rwlock:{lock-").expect("ours");
        let number: usize = number.trim_end_matches('}').parse().expect("a number");
        assert_eq!(payload, (number % 2).to_string());
        assert_eq!(late[number].replace(now - ends[number] - 1), None, "announced twice");
    }
    assert_eq!(keys(con), 0);
    late.into_iter().flatten().collect()
}

#[test]
fn many_locks_lapse_each_at_its_time() {
    let (server, mut con) = server();
    let leases: Vec<usize> = (400..900).collect();
    assert_prompt("one of many", LIMIT, &late_ends(&server, &mut con, &leases, false));
}

#[test]
fn many_locks_lapse_at_the_same_ms() {
    let (server, mut con) = server();
    // In a transaction, so that all end together: each round is one event.
    let late: Vec<i64> =
        (0..8).flat_map(|_| late_ends(&server, &mut con, &[150; 100], true)).collect();
    assert_prompt("one of many at once", LIMIT, &late);
}

/// Used CPU of the server, in ms.
fn cpu(server: &Server) -> f64 {
    let info = server.info("cpu");
    let seconds = |field: &str| info[field].parse::<f64>().expect("seconds");
    1_000.0 * (seconds("used_cpu_sys") + seconds("used_cpu_user"))
}

#[test]
fn ten_thousand_readers_of_one_lock_lapse_one_by_one() {
    const READERS: usize = 10_000;
    const LAPSING: Range<usize> = 0..2_000;
    let (server, mut con) = server();
    let mut pipe = redis::pipe();
    for number in 0..READERS {
        let lease = if LAPSING.contains(&number) { 4_000 + number } else { 120_000 };
        pipe.cmd("RWLOCK.RLOCK").arg("lock").arg(format!("r{number}")).arg(lease).ignore();
    }
    pipe.query::<()>(&mut con).expect("all read");
    let mut pipe = redis::pipe();
    for number in LAPSING {
        pipe.cmd("PEXPIRETIME").arg(format!("{{lock}}:r{number}:rwlock_timeout:1"));
    }
    let ends: Vec<i64> = pipe.query(&mut con).expect("all ends");
    assert!(clock(&mut con) < ends[0], "too slow to see the first lapse");
    assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]));
    let last = ends[LAPSING.end - 1];

    let before = cpu(&server);
    let mut late = Vec::new();
    loop {
        let asked = local_clock();
        let left = int(call!(con, "HLEN", "lock")) as usize - 1;
        let answered = local_clock();
        let gone = READERS - left;
        // All of those that went had lapsed, and of those that had lapsed the
        // first one that is still there has not been late for long.
        assert!(gone == 0 || ends[gone - 1] < answered, "{gone} gone at {answered}");
        if asked > ends[0] {
            late.push(ends.get(gone).map_or(0, |end| (asked - end - 1).max(0)));
        }
        if asked > last + LIMIT && gone == LAPSING.end {
            break;
        }
        assert!(asked < last + 10_000, "{gone} gone");
        thread::sleep(Duration::from_millis(5));
    }
    assert_prompt("one of ten thousand readers", LIMIT, &late);
    // Each costs what it costs, not what all of them together would: to look at
    // ten thousand holds takes several ms.
    let spent = (cpu(&server) - before) / LAPSING.end as f64;
    assert!(spent < 0.7, "{spent} ms of CPU for each lapse");
    assert_eq!(keys(&mut con), 1 + READERS - LAPSING.end);
    assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK lock")), 1);
    assert_eq!(keys(&mut con), 0);
}

#[test]
fn a_redisson_hold_lapses_on_time_once_it_was_touched() {
    let (server, mut con) = server();
    let mut late = Vec::new();
    let mut subscriber = Subscriber::pattern(&server, b"redisson_rwlock:*");
    for round in 0..5 {
        let lock = format!("lock-{round}");
        // The timeouts first: a reader without one has lapsed.
        for owner in ["a", "b"] {
            let timeout = format!("{{{lock}}}:{owner}:rwlock_timeout:1");
            assert_ok(call!(con, "SET", timeout, 1, "PX", 400));
        }
        run(&mut con, &format!("HSET {lock} mode read a 1 b 1")).expect("read");
        run(&mut con, &format!("PEXPIRE {lock} 60000")).expect("a lease");
        let end = ends_at(&mut con, &format!("{{{lock}}}:b:rwlock_timeout:1"));
        assert!(int(run(&mut con, &format!("RWLOCK.WLOCK {lock} c 1000"))) > 0);
        assert_eq!(subscriber.message().1, "0");
        late.push(local_clock() - end - 1);
        assert_eq!(keys(&mut con), 0);

        // Its write lock, which nobody but the hash knows of.
        run(&mut con, &format!("HSET {lock} mode write a:write 1")).expect("write");
        run(&mut con, &format!("PEXPIRE {lock} 400")).expect("a lease");
        let end = ends_at(&mut con, &lock);
        assert!(int(run(&mut con, &format!("RWLOCK.RLOCK {lock} c 1000"))) > 0);
        assert_eq!(subscriber.message().1, "1");
        late.push(local_clock() - end - 1);
        assert_eq!(keys(&mut con), 0);
    }
    assert_prompt("a hold of Redisson's", LIMIT, &late);
}

#[test]
fn a_hash_that_would_end_before_its_readers_is_lengthened_again() {
    let (_server, mut con) = server();
    let mut late = Vec::new();
    for round in 0..9 {
        let lock = format!("lock-{round}");
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK {lock} a 60000")));
        assert_ok(run(&mut con, &format!("RWLOCK.RLOCK {lock} b 90000")));
        let end = ends_at(&mut con, &lock);
        assert_eq!(int(run(&mut con, &format!("PEXPIRE {lock} 300"))), 1);
        let shortened = local_clock();
        late.push(seen_at(|| ends_at(&mut con, &lock) == end) - shortened);
    }
    assert_prompt("lengthened again", LIMIT, &late);

    // Longer is nobody's harm, and without end is without end.
    assert_eq!(int(run(&mut con, "PEXPIRE lock-0 300000")), 1);
    assert_eq!(int(run(&mut con, "PERSIST lock-1")), 1);
    // The write hold's lease is the hash's: this one was cut.
    assert_ok(run(&mut con, "RWLOCK.WLOCK write a 60000"));
    assert_eq!(int(run(&mut con, "PEXPIRE write 30")), 1);
    wait_until("the write hold has ended", || keys(&mut con) == 27);
    assert!(int(run(&mut con, "PTTL lock-0")) > 200_000);
    assert_eq!(int(run(&mut con, "PTTL lock-1")), -1);
    assert_eq!(list(inspect(&mut con, "lock-1", "holders")).len(), 2);
}

#[test]
fn leases_end_on_time_in_the_database_that_a_lock_was_swapped_to() {
    let (server, mut con) = server();
    let mut subscriber = Subscriber::pattern(&server, b"redisson_rwlock:*");
    let mut late = Vec::new();
    for _ in 0..5 {
        assert_ok(run(&mut con, "SELECT 1"));
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 400"));
        assert_ok(run(&mut con, "RWLOCK.RLOCK read a 60000"));
        let end = ends_at(&mut con, "lock");
        assert_ok(run(&mut con, "SWAPDB 0 1"));
        assert_ok(run(&mut con, "SELECT 0"));
        assert_eq!(subscriber.message().1, "1");
        late.push(local_clock() - end - 1);
        // A hash lives as long as its longest hold, there as here.
        let end = ends_at(&mut con, "{read}:a:rwlock_timeout:1");
        assert_eq!(int(run(&mut con, "PEXPIRE read 30000")), 1);
        wait_until("it is lengthened", || ends_at(&mut con, "read") == end);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK read a")), 1);
        assert_eq!(subscriber.message().1, "0");
    }
    assert_prompt("a lock that was swapped", LIMIT, &late);
}
