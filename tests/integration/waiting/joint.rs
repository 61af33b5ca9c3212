//! MLOCK with BLOCK: one waiter in the queues of several locks.

use redis::Value;

use support::{assert_error, call, int, list, map, text, wait_until, Client, Crowd, Server};

/// A new client that sends this and waits now. `locks`: those it waits for.
#[track_caller]
fn waits(crowd: &mut Crowd<'_>, command: &str, locks: &[&str]) -> Client {
    let client = Client::waits(crowd.server, command);
    for lock in locks {
        assert!(crowd.waiting(lock).contains(&client.id), "{command} in the queue of {lock}");
    }
    client
}

#[track_caller]
fn gets_ok(mut client: Client) {
    assert_eq!(client.reply(), Ok(Value::Okay));
}

#[test]
fn it_stands_in_each_queue_and_holds_nothing() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK b x 60000");
    let me = waits(&mut crowd, "MLOCK me 60000 READ 1 a WRITE 1 b BLOCK 0", &["a", "b"]);
    assert_eq!((crowd.holders("a"), crowd.queue("a")), (String::new(), "me read".into()));
    assert_eq!(crowd.queue("b"), "me write");
    let waiter = map(&list(&crowd.inspect("a")["waiters"])[0]);
    assert_eq!(int(&waiter["locks"]), 2);
    let queues = list(call!(crowd.con, "RWLOCK.QUEUES"));
    assert_eq!(queues.len(), 2);
    assert_eq!(crowd.server.info("rwlock")["rwlock_waiters"], "1");
    // Nobody passes it, also not a reader.
    assert_eq!(crowd.refused("WLOCK a y 60000"), 0);
    assert_eq!(crowd.refused("RLOCK a y 60000"), 0);
    crowd.gives("UNLOCK b x", 1);
    gets_ok(me);
    assert_eq!((crowd.holders("a"), crowd.holders("b")), ("me read".into(), "me write".into()));
    crowd.nobody_waits();
}

#[test]
fn one_that_names_one_lock_gets_the_kind_of_hold_that_it_asked_for() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for (kind, expected) in [("WRITE", "me write"), ("READ", "me read")] {
        for options in ["", " ONCE", " FENCE", " SESSION"] {
            if kind == "READ" && options == " FENCE" {
                continue;
            }
            crowd.ok("WLOCK k x 60000");
            let line = format!("MLOCK me 60000 {kind} 1 k{options} BLOCK 0");
            let mut me = waits(&mut crowd, &line, &["k"]);
            assert_eq!(crowd.queue("k"), expected, "{line}");
            crowd.gives("UNLOCK k x", 1);
            match me.reply() {
                Ok(Value::Array(reply)) => assert_eq!(reply.len(), 2, "{line}"),
                Ok(Value::Okay) => assert_ne!(options, " FENCE", "{line}"),
                other => panic!("{line}: {other:?}"),
            }
            assert_eq!(crowd.holders("k"), expected, "{line}");
            assert_eq!(list(call!(crowd.con, "RWLOCK.MUNLOCK", "me", kind, 1, "k")).len(), 1);
        }
    }
}

#[test]
fn it_is_served_in_its_turn_in_each_queue() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("MLOCK x 60000 WRITE 2 a b");
    let first = crowd.waits("WLOCK a one 60000 BLOCK 0");
    let me = waits(&mut crowd, "MLOCK me 60000 WRITE 2 a b BLOCK 0", &["a", "b"]);
    let last = crowd.waits("WLOCK b two 60000 BLOCK 0");
    crowd.gives("UNLOCK b x", 1);
    // It is the first in the queue of b, and waits for a.
    assert_eq!(crowd.holders("b"), "");
    crowd.gives("UNLOCK a x", 1);
    gets_ok(first);
    crowd.gives("UNLOCK a one", 1);
    gets_ok(me);
    assert_eq!(crowd.queue("b"), "two write");
    crowd.gives("UNLOCK b me", 1);
    gets_ok(last);
}

#[test]
fn readers_behind_it_get_in_with_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK b x 60000");
    let me = waits(&mut crowd, "MLOCK me 60000 READ 2 a b BLOCK 0", &["a", "b"]);
    let reader = crowd.waits("RLOCK a other 60000 BLOCK 0");
    let second = waits(&mut crowd, "MLOCK you 60000 READ 2 b a BLOCK 0", &["a", "b"]);
    crowd.gives("UNLOCK b x", 1);
    gets_ok(me);
    gets_ok(reader);
    gets_ok(second);
    assert_eq!(crowd.holders("a"), "me read, other read, you read");
}

#[test]
fn the_policies_hold_for_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("CONFIG SET rwlock.policy prefer-readers");
    crowd.ok("RLOCK a x 60000");
    crowd.ok("WLOCK b x 60000");
    let me = waits(&mut crowd, "MLOCK me 60000 READ 2 a b BLOCK 0", &["a", "b"]);
    // Readers join a lock that is read, whoever waits.
    crowd.ok("RLOCK a y 60000");
    crowd.ok("MLOCK you 60000 READ 1 a WRITE 1 c BLOCK 0");
    crowd.gives("UNLOCK b x", 1);
    gets_ok(me);

    crowd.plain("FLUSHALL");
    crowd.plain("CONFIG SET rwlock.policy prefer-writers");
    crowd.ok("MLOCK x 60000 WRITE 2 a b");
    // Who wants to write one of its locks goes among the writers everywhere.
    let me = waits(&mut crowd, "MLOCK me 60000 READ 1 a WRITE 1 b BLOCK 0", &["a", "b"]);
    let you = waits(&mut crowd, "MLOCK you 60000 WRITE 1 a READ 1 b BLOCK 0", &["a", "b"]);
    let reader = crowd.waits("RLOCK a r 60000 BLOCK 0");
    assert_eq!(crowd.queue("a"), "me read, you write, r read");
    assert_eq!(crowd.queue("b"), "me write, you read");
    list(crowd.run("MUNLOCK x WRITE 2 a b"));
    gets_ok(me);
    list(crowd.run("MUNLOCK me READ 1 a WRITE 1 b"));
    gets_ok(you);
    list(crowd.run("MUNLOCK you WRITE 1 a READ 1 b"));
    gets_ok(reader);
}

#[test]
fn everything_is_given_back_before_the_queues_are_served() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("MLOCK x 60000 WRITE 3 a b c");
    let both = waits(&mut crowd, "MLOCK me 60000 WRITE 2 c a BLOCK 0", &["a", "c"]);
    let single = crowd.waits("WLOCK a you 60000 BLOCK 0");
    let released = list(crowd.run("MUNLOCK x WRITE 3 a b c"));
    assert_eq!(released.iter().map(int).collect::<Vec<_>>(), [1, 1, 1]);
    // In the same step: nobody saw the locks free.
    assert_eq!((crowd.holders("a"), crowd.holders("c")), ("me write".into(), "me write".into()));
    gets_ok(both);
    assert_eq!(crowd.queue("a"), "you write");
    drop(single);
}

#[test]
fn it_leaves_all_queues_at_once_however_it_leaves() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK b x 60000");
    let command = "MLOCK me 60000 WRITE 2 a b BLOCK 0";
    let behind = |crowd: &mut Crowd<'_>| {
        let other = crowd.waits("WLOCK a other 60000 BLOCK 0");
        assert_eq!(crowd.queue("a"), "me write, other write");
        other
    };
    let gone = |crowd: &mut Crowd<'_>, other: Client| {
        gets_ok(other);
        crowd.gives("UNLOCK a other", 1);
        crowd.nobody_waits();
    };
    // Its connection closes.
    let me = waits(&mut crowd, command, &["a", "b"]);
    let other = behind(&mut crowd);
    drop(me);
    gone(&mut crowd, other);
    // CLIENT UNBLOCK.
    for (how, is_error) in [("TIMEOUT", false), ("ERROR", true)] {
        let mut me = waits(&mut crowd, command, &["a", "b"]);
        let other = behind(&mut crowd);
        crowd.plain(&format!("CLIENT UNBLOCK {} {how}", me.id));
        match is_error {
            true => drop(assert_error(me.reply(), "UNBLOCKED")),
            false => assert!((55_000..=60_000).contains(&int(me.reply()))),
        }
        gone(&mut crowd, other);
    }
    // Its time is up. What is told is the time of the lock that refuses.
    let mut me = waits(&mut crowd, "MLOCK me 60000 WRITE 2 a b BLOCK 300", &["a", "b"]);
    let other = behind(&mut crowd);
    assert!((50_000..=60_000).contains(&int(me.reply())));
    gone(&mut crowd, other);
    // One of its keys becomes something that is no lock.
    let mut me = waits(&mut crowd, command, &["a", "b"]);
    let other = behind(&mut crowd);
    crowd.plain("SET b text");
    assert_error(me.reply(), "WRONGTYPE");
    gone(&mut crowd, other);
}

#[test]
fn it_counts_once_among_the_waiters() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("CONFIG SET rwlock.max-waiters 2");
    crowd.ok("WLOCK a x 60000");
    let _me = waits(&mut crowd, "MLOCK me 60000 WRITE 3 a b c BLOCK 0", &["a", "b", "c"]);
    let _you = crowd.waits("WLOCK a you 60000 BLOCK 0");
    assert_error(crowd.run("MLOCK they 60000 WRITE 2 a b BLOCK 0"), "ERR too many waiters");
}

#[test]
fn a_lock_that_its_owner_has_is_open_to_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("RLOCK a me 60000");
    crowd.ok("WLOCK b x 60000");
    let writer = crowd.waits("WLOCK a w 60000 BLOCK 0");
    let me = waits(&mut crowd, "MLOCK me 60000 READ 1 a WRITE 1 b BLOCK 0", &["a", "b"]);
    // The writer waits for its owner, so it does not wait for the writer.
    crowd.gives("UNLOCK b x", 1);
    gets_ok(me);
    crowd.gives("UNLOCK a me ALL", 1);
    gets_ok(writer);
}

#[test]
fn deadlocks_through_it_are_found() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK c me 60000");
    crowd.ok("WLOCK a x 60000");
    let _me = waits(&mut crowd, "MLOCK me 60000 WRITE 2 a b BLOCK 0", &["a", "b"]);
    let error = crowd.run("WLOCK c x 60000 BLOCK 0").expect_err("a deadlock").to_string();
    assert!(error.contains("x waits for me, me waits for x"), "{error}");
    // Also through its place in the queue of a free lock.
    crowd.ok("WLOCK d x 60000");
    let _you = crowd.waits("WLOCK b you 60000 BLOCK 0");
    assert_error(crowd.run("MLOCK x 60000 WRITE 2 c d BLOCK 0"), "DEADLOCK");
    crowd.ok("WLOCK e you 60000");
    assert_error(crowd.run("WLOCK e x 60000 BLOCK 0"), "DEADLOCK");
}

#[test]
fn waiters_of_several_locks_never_wait_for_each_other_in_a_circle() {
    for policy in ["fifo", "prefer-readers", "prefer-writers"] {
        let server = Server::builder().config("rwlock.policy", policy).start();
        let mut crowd = Crowd::on(&server);
        crowd.ok("MLOCK x 60000 WRITE 3 a b c");
        let commands = [
            "MLOCK o1 60000 READ 1 a WRITE 1 b BLOCK 0",
            "MLOCK o2 60000 READ 1 b WRITE 1 c BLOCK 0",
            "MLOCK o3 60000 READ 1 c WRITE 1 a BLOCK 0",
            "MLOCK o4 60000 WRITE 2 c b BLOCK 0",
            "MLOCK o5 60000 READ 3 a b c BLOCK 0",
        ];
        let clients = commands.map(|command| waits(&mut crowd, command, &[]));
        list(crowd.run("MUNLOCK x WRITE 3 a b c"));
        wait_until(&format!("all are served under {policy}"), || {
            // Each gives back what it has.
            for owner in 1..=5 {
                list(crowd.run(&format!("MUNLOCK o{owner} ALL 3 a b c")));
            }
            list(call!(crowd.con, "RWLOCK.QUEUES")).is_empty()
        });
        clients.into_iter().for_each(gets_ok);
    }
}

#[test]
fn its_session_holds_end_with_its_connection() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK b x 60000");
    let mut me =
        waits(&mut crowd, "MLOCK me 60000 READ 1 a WRITE 1 b SESSION BLOCK 0", &["a", "b"]);
    crowd.gives("UNLOCK b x", 1);
    assert_eq!(me.reply(), Ok(Value::Okay));
    assert_eq!(crowd.server.info("rwlock")["rwlock_session_holds"], "2");
    let both = waits(&mut crowd, "MLOCK you 60000 WRITE 2 a b BLOCK 0", &["a", "b"]);
    drop(me);
    gets_ok(both);
    assert_eq!((crowd.holders("a"), crowd.holders("b")), ("you write".into(), "you write".into()));
}

#[test]
fn a_lapse_or_a_deletion_of_one_lock_serves_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK a x 60000");
    crowd.ok("WLOCK b x 60000");
    let me = waits(&mut crowd, "MLOCK me 60000 WRITE 2 a b BLOCK 0", &["a", "b"]);
    crowd.plain("DEL a");
    crowd.plain("PEXPIRE b 20");
    gets_ok(me);
    let tokens = waits(&mut crowd, "MLOCK you 60000 WRITE 2 a b FENCE BLOCK 0", &["a", "b"]);
    list(crowd.run("MUNLOCK me WRITE 2 a b"));
    let mut tokens = tokens;
    let reply = list(tokens.reply());
    assert_eq!((text(&reply[0]).as_str(), reply.len()), ("OK", 3));
}

/// A script makes the waiter the writer of one of its locks, and no event tells of that.
#[test]
fn a_lock_that_a_script_gave_to_it_is_open_to_it() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("WLOCK a x 60000");
    crowd.ok("WLOCK b z 60000");
    let me = waits(&mut crowd, "MLOCK me 60000 WRITE 2 a b BLOCK 0", &["a", "b"]);
    let change = "redis.call('HSET', KEYS[1], 'me:write', 1) \
                  redis.call('HDEL', KEYS[1], 'z:write')";
    let changed: Value = call!(crowd.con, "EVAL", change, 1, "b").expect("run a script");
    assert_eq!(changed, Value::Nil);
    crowd.gives("UNLOCK a x", 1);
    gets_ok(me);
    assert_eq!((crowd.holders("a"), crowd.holders("b")), ("me write".into(), "me write".into()));
    crowd.gives("UNLOCK b me", 0);
    crowd.gives("UNLOCK b me", 1);
}
