//! Whatever frees a lock serves its queue.

use std::time::{Duration, Instant};

use redis::{Connection, Value};
use support::{
    assert_ok, assert_prompt, bytes, call, int, on_this_machine, wait_synced, wait_until, Client,
    Crowd, Server,
};

/// How often what frees a lock is tried.
const ROUNDS: usize = 5;

/// Well below the time after which the server would look at a lock that is
/// waited for without being told.
const AT_ONCE: Duration = Duration::from_millis(25);

/// A writer holds `k` (and nothing else does anything), `a` waits; then
/// `frees` is run, and `a` gets in at once.
///
/// The best of some rounds is taken for the time it takes: a loaded machine is
/// late at times, a server that was not told of the change always is.
#[track_caller]
fn serves(crowd: &mut Crowd<'_>, what: &str, request: &str, frees: impl Fn(&mut Crowd<'_>)) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        crowd.plain("FLUSHALL");
        crowd.ok("WLOCK k h 100000");
        let mut waiter = crowd.waits(request);
        let started = Instant::now();
        frees(crowd);
        best = best.min(granted(&mut waiter, what) - started);
        crowd.nobody_waits();
    }
    assert!(best < on_this_machine(AT_ONCE, ROUNDS), "{what}: {best:?}");
}

#[track_caller]
fn granted(waiter: &mut Client, what: &str) -> Instant {
    let reply = waiter.reply();
    assert_eq!(reply, Ok(Value::Okay), "{what}");
    Instant::now()
}

#[test]
fn commands_of_the_module_serve_the_queue() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for request in ["WLOCK k a 100000 BLOCK 0", "RLOCK k a 100000 BLOCK 0"] {
        for command in ["UNLOCK k h", "UNLOCK k h ALL", "FORCEUNLOCK k", "FORCEUNLOCK k WRITE"] {
            serves(&mut crowd, command, request, |crowd| crowd.gives(command, 1));
        }
    }
    let reader = "RLOCK k a 100000 BLOCK 0";
    serves(&mut crowd, "DOWNGRADE", reader, |crowd| crowd.ok("DOWNGRADE k h 100000"));
    serves(&mut crowd, "UNLOCK WRITE", reader, |crowd| {
        crowd.ok("RLOCK k h 100000");
        crowd.gives("UNLOCK k h WRITE", 0);
    });
}

#[test]
fn commands_of_the_server_serve_the_queue() {
    let server = Server::builder().config("appendonly", "no").start();
    let mut crowd = Crowd::on(&server);
    let writer = "WLOCK k a 100000 BLOCK 0";
    for commands in [
        "DEL k",
        "UNLINK k",
        "RENAME k elsewhere",
        "RENAMENX k elsewhere",
        "MOVE k 1",
        "PEXPIRE k 1",
        "PEXPIRE k 0",
        "PEXPIREAT k 1000",
        "EXPIRE k -1",
        "EXPIREAT k 1",
        "HDEL k mode h:write",
        "SINTERSTORE k nothing",
        "SORT nothing STORE k",
        "FLUSHDB",
        "FLUSHDB ASYNC",
        "FLUSHDB SYNC",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "SWAPDB 0 1",
        "SWAPDB 1 0",
        "MULTI;DEL k;SET x 1;EXEC",
        "MULTI;FLUSHALL;EXEC",
        // A hash without live holds takes the lock's place.
        "HSET other mode read b 1;RENAME other k",
        "HSET other mode read b 1;COPY other k REPLACE",
        "SELECT 1;HSET other mode read b 1;COPY other k DB 0 REPLACE;SELECT 0",
    ] {
        serves(&mut crowd, commands, writer, |crowd| {
            for command in commands.split(';') {
                crowd.plain(command);
            }
        });
    }
    serves(&mut crowd, "RESTORE", writer, |crowd| {
        crowd.plain("HSET other mode read b 1");
        let dump = bytes(call!(crowd.con, "DUMP", "other"));
        assert_ok(call!(crowd.con, "RESTORE", "k", 0, dump, "REPLACE"));
    });
    serves(&mut crowd, "another client's DEL in a script", writer, |crowd| {
        let deleted = call!(crowd.con, "EVAL", "return redis.call('DEL', KEYS[1])", 1, "k");
        assert_eq!(int(deleted), 1);
    });
}

#[test]
fn what_ends_a_read_hold_serves_writers() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let timeout = "{k}:h:rwlock_timeout:1";
    for command in [
        "RWLOCK.UNLOCK k h".to_owned(),
        "DEL k".to_owned(),
        "HDEL k h mode".to_owned(),
        // The hold's own key.
        format!("DEL {timeout}"),
        format!("UNLINK {timeout}"),
        format!("PEXPIRE {timeout} 1"),
        format!("PEXPIREAT {timeout} 1000"),
        format!("RENAME {timeout} elsewhere"),
        format!("MOVE {timeout} 1"),
    ] {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            crowd.plain("FLUSHALL");
            crowd.ok("RLOCK k h 100000");
            let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
            let started = Instant::now();
            crowd.plain(&command);
            best = best.min(granted(&mut waiter, &command) - started);
        }
        assert!(best < on_this_machine(AT_ONCE, ROUNDS), "{command}: {best:?}");
    }
}

#[test]
fn a_lapse_serves_the_queue() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    for (hold, request) in [
        ("WLOCK k h 150", "RLOCK k a 100000 BLOCK 0"),
        ("WLOCK k h 150", "WLOCK k a 100000 BLOCK 0"),
        ("RLOCK k h 150", "WLOCK k a 100000 BLOCK 0"),
    ] {
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            crowd.plain("FLUSHALL");
            let asked = Instant::now();
            crowd.ok(hold);
            let ends = Instant::now() + Duration::from_millis(150);
            let mut waiter = crowd.client();
            waiter.send(request);
            let at = waiter.granted();
            // Less one: from 7.4 on, Redis removes a key in the very ms of its
            // expiry, and not after it, when it clears away what has expired.
            assert!(at >= asked + Duration::from_millis(149), "{hold}: it had not lapsed");
            let ms = at.saturating_duration_since(ends).as_millis();
            late.push(i64::try_from(ms).expect("a short while"));
        }
        assert_prompt(hold, 10, &late);
    }
}

#[test]
fn a_database_that_is_swapped_in_serves_its_locks() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // The lock of database 0 is free in 1, and the other way round.
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        crowd.plain("FLUSHALL");
        crowd.ok("WLOCK k h 100000");
        let mut zero = crowd.waits("WLOCK k a 100000 BLOCK 0");
        let mut one = crowd.client();
        call!(one.con, "SELECT", 1).expect("select");
        call!(crowd.con, "SELECT", 1).expect("select");
        crowd.ok("WLOCK other h 100000");
        one.send("WLOCK other b 100000 BLOCK 0");
        wait_until("it waits", || crowd.waiting("other") == [one.id]);
        call!(crowd.con, "SELECT", 0).expect("select");
        let started = Instant::now();
        crowd.plain("SWAPDB 0 1");
        best = best.min(zero.granted().max(one.granted()) - started);
        assert_eq!(crowd.holders("k"), "a write");
        // Its old lock is there now, as it was.
        assert_eq!(crowd.holders("other"), "h write");
        call!(crowd.con, "SELECT", 1).expect("select");
        assert_eq!(crowd.holders("other"), "b write");
        assert_eq!(crowd.holders("k"), "h write");
        call!(crowd.con, "SELECT", 0).expect("select");
    }
    assert!(best < on_this_machine(AT_ONCE, ROUNDS), "{best:?}");
}

#[test]
fn a_client_stays_in_its_database() {
    // Some servers leave a client where the last key event was.
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let replica = Server::builder().replica_of(&server).start();
    wait_synced(&server, &replica);
    crowd.plain("SET key 1");
    crowd.plain("MOVE key 1");
    crowd.plain("SET here 1");
    assert_eq!(int(crowd.plain("DBSIZE")), 1);
    // Nor does the stream to a replica change its database.
    wait_synced(&server, &replica);
    let mut on_replica = replica.connection();
    assert_eq!(int(call!(on_replica, "DBSIZE")), 1);
    assert_eq!(int(call!(on_replica, "EXISTS", "here")), 1);
}

#[test]
fn an_eviction_serves_the_queue() {
    let server = Server::builder().config("maxmemory-policy", "allkeys-random").start();
    let mut crowd = Crowd::on(&server);
    let ballast = "x".repeat(100_000);
    let fill = |con: &mut Connection, at: usize| {
        call!(con, "SET", format!("ballast:{at}"), &ballast).expect("it evicts, and has room");
    };
    for at in 0..30 {
        fill(&mut crowd.con, at);
    }
    crowd.ok("WLOCK k h 100000");
    let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    let used = server.info("memory")["used_memory"].parse::<u64>().expect("a number");
    crowd.plain(&format!("CONFIG SET maxmemory {}", used + 500_000));
    // Each makes room for itself, and one of them at the cost of the lock.
    let mut at = 100;
    wait_until("the lock is evicted", || {
        for _ in 0..20 {
            at += 1;
            fill(&mut crowd.con, at);
        }
        crowd.holders("k") != "h write"
    });
    crowd.plain("CONFIG SET maxmemory 0");
    waiter.granted();
    crowd.nobody_waits();
}

#[test]
fn who_gets_the_lock_s_place_may_be_its_waiter() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // Another lock is renamed onto this one: its holder waits here.
    serves(&mut crowd, "RENAME", "WLOCK k a 100000 BLOCK 0", |crowd| {
        crowd.ok("WLOCK other a 100000");
        crowd.plain("RENAME other k");
    });
    // And if it is somebody else, it goes on waiting.
    crowd.plain("FLUSHALL");
    crowd.ok("WLOCK k h 100000");
    let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    crowd.ok("WLOCK other b 100000");
    crowd.plain("RENAME other k");
    let mut short = crowd.waits("WLOCK k c 1000 BLOCK 500");
    assert!(short.refused() > 0);
    assert_eq!(crowd.waiting("k"), [waiter.id]);
    crowd.gives("UNLOCK k b", 1);
    waiter.granted();
}

#[test]
fn waiters_of_a_key_that_is_no_lock_any_more_are_told() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("SADD set a");
    for commands in [
        "SET k value",
        "SUNIONSTORE k set",
        "RPUSH other a;RENAME other k",
        "SET other a;COPY other k REPLACE",
        "MULTI;DEL k;HSET k field value;EXEC",
        // No event tells of these, but their waiters are told.
        "HSET k mode strange",
        "HDEL k mode",
    ] {
        crowd.plain("DEL k");
        crowd.ok("WLOCK k h 100000");
        let mut writer = crowd.waits("WLOCK k a 100000 BLOCK 0");
        let mut reader = crowd.waits("RLOCK k b 100000 BLOCK 0");
        for command in commands.split(';') {
            crowd.plain(command);
        }
        writer.fails("WRONGTYPE");
        reader.fails("WRONGTYPE");
        crowd.nobody_waits();
    }
}

#[test]
fn a_lock_that_was_deleted_may_be_taken_before_its_queue_is_served() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    // DEL and an acquisition in one step: the queue goes first.
    crowd.ok("WLOCK k h 100000");
    let mut waiter = crowd.waits("WLOCK k a 100000 BLOCK 0");
    crowd.plain("MULTI");
    crowd.plain("DEL k");
    crowd.run("WLOCK k thief 1000").expect("queued");
    crowd.plain("EXEC");
    waiter.granted();
    assert_eq!(crowd.holders("k"), "a write");
}

#[test]
fn a_reservation_key_that_names_no_owner_is_told_to_those_who_wait_for_a_writer() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.ok("MLOCK h 60000 WRITE 2 k other");
    for request in ["WLOCK k w 60000 BLOCK 0", "MLOCK w 60000 READ 1 k WRITE 1 free BLOCK 0"] {
        let mut waiter = Client::waits(&server, request);
        crowd.plain("LPUSH {k}:wait_write x");
        waiter.fails("WRONGTYPE");
        crowd.plain("DEL {k}:wait_write");
    }
    assert_eq!(crowd.holders("k"), "h write");
}
