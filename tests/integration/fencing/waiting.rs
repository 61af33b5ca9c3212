//! FENCE for those who wait: the token comes with the grant, whoever brings it
//! about.

use std::cell::Cell;

use crate::fencing::tokens::{fenced, token};
use support::redisson::Redisson;
use support::wire::ReplicationStream;
use support::{call, int, text, wait_until, Call, Client, Crowd, Server};

const KEY: &str = "{k}:rwlock_fence";

/// What frees the lock `k`, which `h` holds.
type Free<'f> = &'f dyn Fn(&mut Crowd<'_>);

/// The reply comes, and has a token.
#[track_caller]
fn granted(mut client: Client) -> i64 {
    token(client.reply())
}

#[test]
fn whoever_frees_the_lock_brings_the_waiter_its_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let scripts = Redisson::load(&mut crowd.con).expect("load the scripts");
    // Each unlock is a request of its own.
    let requests = Cell::new(0);
    let mut last = 0;
    let frees: [(&str, Free<'_>); 9] = [
        ("UNLOCK", &|crowd| crowd.gives("UNLOCK k h", 1)),
        ("FORCEUNLOCK", &|crowd| crowd.gives("FORCEUNLOCK k", 1)),
        ("DEL", &|crowd| drop(crowd.plain("DEL k"))),
        ("a shortened lease", &|crowd| drop(crowd.plain("PEXPIRE k 5"))),
        ("FLUSHALL", &|crowd| drop(crowd.plain("FLUSHALL"))),
        ("RENAME", &|crowd| drop(crowd.plain("RENAME k other"))),
        ("a transaction", &|crowd| {
            crowd.plain("MULTI");
            crowd.plain("RWLOCK.UNLOCK k h");
            crowd.plain("EXEC");
        }),
        ("a script", &|crowd| {
            let script = "return redis.call('RWLOCK.UNLOCK', KEYS[1], 'h')";
            assert_eq!(int(call!(crowd.con, "EVAL", script, 1, "k")), 1);
        }),
        ("Redisson", &|crowd| {
            let request = requests.replace(requests.get() + 1).to_string();
            assert_eq!(int(crowd.con.call(&scripts.write_unlock("k", "h", &request))), 1);
        }),
    ];
    for (what, free) in frees {
        for request in ["WLOCK k w 60000 FENCE BLOCK 0", "WLOCK k w 60000 BLOCK 9000 ONCE FENCE"] {
            last = last.max(fenced(&mut crowd.con, "WLOCK k h 60000 FENCE"));
            let waiter = crowd.waits(request);
            free(&mut crowd);
            let next = granted(waiter);
            assert!(next > last, "{what}: {next} after {last}");
            assert_eq!(text(call!(crowd.con, "GET", KEY)), next.to_string(), "{what}");
            last = next;
            crowd.gives("UNLOCK k w", 1);
        }
    }
}

#[test]
fn a_closed_connection_brings_the_waiter_its_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut holder = crowd.client();
    let first = fenced(&mut holder.con, "WLOCK k h 60000 SESSION FENCE");
    let waiter = crowd.waits("WLOCK k w 60000 BLOCK 0 SESSION FENCE");
    drop(holder);
    let second = granted(waiter);
    assert!(second > first);
    // And that was dropped as well.
    wait_until("it is free", || crowd.holders("k").is_empty());
    assert!(fenced(&mut crowd.con, "WLOCK k h 60000 FENCE") > second);
}

#[test]
fn a_queue_of_writers_gets_increasing_tokens() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 60000");
    let waiters: Vec<Client> =
        (0..20).map(|n| crowd.waits(&format!("WLOCK k w{n} 60000 BLOCK 0 FENCE"))).collect();
    crowd.gives("UNLOCK k h", 1);
    let mut tokens = Vec::new();
    for (number, waiter) in waiters.into_iter().enumerate() {
        tokens.push(granted(waiter));
        crowd.gives(&format!("UNLOCK k w{number}"), 1);
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn the_other_waiters_of_an_owner_get_the_same_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 60000");
    let one = crowd.waits("WLOCK k w 60000 BLOCK 0 FENCE");
    let stranger = crowd.waits("WLOCK k x 60000 BLOCK 0 FENCE");
    let other = crowd.waits("WLOCK k w 60000 BLOCK 0 FENCE");
    let mut plain = crowd.waits("WLOCK k w 60000 BLOCK 0");
    crowd.gives("UNLOCK k h", 1);
    let first = granted(one);
    assert_eq!(granted(other), first);
    plain.granted();
    assert_eq!(fenced(&mut crowd.con, "WLOCK k w 60000 FENCE"), first);
    crowd.gives("UNLOCK k w ALL", 1);
    assert!(granted(stranger) > first);
}

#[test]
fn an_upgrade_that_waited_gets_a_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut last = 0;
    for end in ["UNLOCK k b", "UNLOCK k b ALL"] {
        crowd.ok("RLOCK k a 60000");
        crowd.ok("RLOCK k b 60000");
        let waiter = crowd.waits("UPGRADE k a 60000 FENCE BLOCK 0");
        let mut behind = crowd.waits("WLOCK k c 60000 BLOCK 0");
        crowd.gives(end, 0);
        let next = granted(waiter);
        assert!(next > last);
        last = fenced(&mut crowd.con, "UPGRADE k a 60000 FENCE");
        assert_eq!(last, next);
        crowd.gives("UNLOCK k a ALL", 1);
        behind.granted();
        // It asked for none, and has none.
        let next = fenced(&mut crowd.con, "WLOCK k c 60000 FENCE");
        assert!(next > last);
        last = next;
        crowd.gives("UNLOCK k c ALL", 1);
    }
}

#[test]
fn who_is_not_granted_gets_no_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK k h 60000");
    assert!(crowd.refused("WLOCK k w 60000 FENCE BLOCK 20") > 0);
    let mut unblocked = crowd.waits("WLOCK k w 60000 FENCE BLOCK 0");
    assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", unblocked.id)), 1);
    assert!(unblocked.refused() > 0);
    let mut unblocked = crowd.waits("WLOCK k w 60000 FENCE BLOCK 0");
    assert_eq!(int(call!(crowd.con, "CLIENT", "UNBLOCK", unblocked.id, "ERROR")), 1);
    unblocked.fails("UNBLOCKED");
    crowd.gives("UNLOCK k h", 1);
    crowd.ok("RLOCK k w 60000");
    assert!(crowd.run("WLOCK k w 60000 FENCE BLOCK 0").is_err(), "it would wait for itself");
    assert_eq!(int(call!(crowd.con, "EXISTS", KEY)), 0);
}

#[test]
fn a_waiter_whose_token_cannot_be_made_gets_the_error_and_the_next_one_the_lock() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for (hostile, error) in [
        ("SET {k}:rwlock_fence 9007199254740991", "ERR the next fencing token"),
        ("SET {k}:rwlock_fence 0", "WRONGTYPE"),
        ("RPUSH {k}:rwlock_fence 1", "WRONGTYPE"),
    ] {
        crowd.ok("WLOCK k h 60000");
        let mut first = crowd.waits("WLOCK k a 60000 BLOCK 0 FENCE");
        let mut second = crowd.waits("WLOCK k b 60000 BLOCK 0");
        crowd.plain(hostile);
        crowd.gives("UNLOCK k h", 1);
        first.fails(error);
        second.granted();
        crowd.plain("DEL {k}:rwlock_fence");
        assert_eq!(crowd.holders("k"), "b write");
        crowd.gives("UNLOCK k b", 1);
        crowd.nobody_waits();
    }
}

#[test]
fn a_grant_that_cannot_be_delivered_burns_its_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut stream = ReplicationStream::attach(&server);
    for round in 0..10 {
        let first = fenced(&mut crowd.con, "WLOCK k h 60000 FENCE");
        let session = if round % 2 == 0 { "" } else { " SESSION" };
        let lost = crowd.waits(&format!("WLOCK k a 60000 BLOCK 0 FENCE{session}"));
        let waiter = crowd.waits("WLOCK k b 60000 BLOCK 0 FENCE");
        let mut reply = 0;
        let ((), sent) = stream.during(&mut crowd.con, |con| {
            let mut pipe = redis::pipe();
            pipe.atomic().cmd("RWLOCK.UNLOCK").arg("k").arg("h");
            pipe.cmd("CLIENT").arg("KILL").arg("ID").arg(lost.id);
            let replies: Vec<i64> = pipe.query(con).expect("both");
            assert_eq!(replies, [1, 1]);
            reply = granted(waiter);
        });
        // Every SET of the key is a token that was made.
        let made: Vec<i64> = sent
            .iter()
            .filter(|words| words[0] == "SET" && words[1] == KEY)
            .map(|words| words[2].parse().expect("a token"))
            .collect();
        let [burnt, delivered] = made[..] else {
            panic!("one that was lost and one that was delivered: {made:?}");
        };
        assert!(first < burnt && burnt < delivered, "{first} {made:?}");
        assert_eq!(reply, delivered);
        assert_eq!(crowd.holders("k"), "b write");
        crowd.gives("UNLOCK k b", 1);
    }
}

#[test]
fn a_reservation_that_lets_the_waiter_in_at_once_brings_its_token() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK k h 60000");
    assert!(crowd.refused("WLOCK k w 60000 FENCE RESERVE 60000") > 0);
    // Others wait behind the reservation; its owner goes before them.
    let waiter = crowd.waits("WLOCK k x 60000 BLOCK 0 FENCE");
    crowd.gives("UNLOCK k h", 1);
    let first = fenced(&mut crowd.con, "WLOCK k w 60000 BLOCK 9000 FENCE");
    crowd.gives("UNLOCK k w", 1);
    assert!(granted(waiter) > first);
}
