//! Grants outside the waiter's own command: refused while that command would
//! be, and taken back when the answer is lost.

use std::time::Duration;
use std::{fs, thread};

use redis::{cmd, Connection, Value};

use support::observe::{info_number, inspect, run};
use support::{
    assert_error, assert_ok, assert_prompt, call, int, list, local_clock, map, unload, wait_synced,
    wait_until, wait_until_within, Client, Server,
};

fn waiters(con: &mut Connection, lock: &str) -> i64 {
    int(inspect(con, lock, "waiters_total"))
}

/// A lock that lapses in so many ms, and one who waits for it; and one that is
/// held by a session, whose end is another way to free a lock.
fn about_to_lapse(server: &Server, lease: i64) -> (Client, Client, Connection) {
    let mut con = server.connection();
    assert_ok(run(&mut con, &format!("RWLOCK.WLOCK lapses a {lease}")));
    assert_ok(run(&mut con, "RWLOCK.WLOCK session a 60000 SESSION"));
    let first = Client::waits(server, "WLOCK lapses b 60000 BLOCK 0");
    let second = Client::waits(server, "RLOCK session b 60000 BLOCK 0");
    (first, second, con)
}

/// Nobody is granted anything for a while after the lapse, until `clear`. The
/// lease is to outlast `spoil`.
fn refused_until(
    server: &Server,
    what: &str,
    lease: i64,
    spoil: impl FnOnce(),
    clear: impl FnOnce(),
) {
    let (mut first, mut second, session) = about_to_lapse(server, lease);
    let mut con = server.connection();
    spoil();
    drop(session);
    wait_until("both locks are free", || int(run(&mut con, "EXISTS lapses session")) == 0);
    // Nothing is to happen, in the time of several tries.
    thread::sleep(Duration::from_millis(100));
    for lock in ["lapses", "session"] {
        assert_eq!(waiters(&mut con, lock), 1, "{what}: {lock}");
        assert_eq!(int(run(&mut con, &format!("EXISTS {lock}"))), 0, "{what}: {lock}");
    }
    clear();
    first.granted();
    second.granted();
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lapses b")), 1, "{what}");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK session b")), 1, "{what}");
}

#[test]
fn nobody_is_granted_a_lock_while_memory_is_used_up() {
    let server = Server::builder().start();
    let mut con = server.connection();
    refused_until(
        &server,
        "maxmemory",
        500,
        || assert_ok(call!(server.connection(), "CONFIG", "SET", "maxmemory", 1)),
        // The last command that they hear of for a while.
        || assert_ok(call!(server.connection(), "CONFIG", "SET", "maxmemory", 0)),
    );

    // UNLOCK works, but hands over to nobody.
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
    let mut waiter = Client::waits(&server, "WLOCK lock b 60000 BLOCK 0");
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 1));
    assert_error(run(&mut con, "RWLOCK.WLOCK other a 60000"), "OOM");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(waiters(&mut con, "lock"), 1);
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 0));
    waiter.granted();
}

/// A server with 20 MB of keys, of which those that end first are evicted first: not the
/// locks of these tests.
fn evicting(policy: &str) -> (Server, Connection) {
    let server = Server::builder().start();
    let mut con = server.connection();
    let fill = "for i = 1, 20000 do redis.call('SET', 'filler:' .. i, ARGV[1], 'EX', 1000) end";
    call!(con, "EVAL", fill, 0, "x".repeat(1_000)).expect("fill it");
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory-policy", policy));
    (server, con)
}

fn used_memory(server: &Server) -> i64 {
    info_number(server, "memory", "used_memory")
}

#[test]
fn an_idle_server_over_its_limit_grants_where_a_command_would_evict() {
    let (server, mut con) = evicting("noeviction");
    let mut session = server.connection();
    assert_ok(run(&mut session, "RWLOCK.WLOCK lock a 600000000 SESSION"));
    let mut waiter = Client::waits(&server, "WLOCK lock b 600000000 BLOCK 0");
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory", used_memory(&server) - 5_000_000));
    // It evicts with the next command, and none comes.
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl"));
    drop(session);
    waiter.granted();
}

#[test]
fn a_full_cache_hands_every_lock_over() {
    let (server, mut con) = evicting("volatile-ttl");
    for round in 0..100 {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 600000000"));
        let mut waiter = Client::waits(&server, "WLOCK lock b 600000000 BLOCK 0");
        assert_ok(call!(con, "CONFIG", "SET", "maxmemory", used_memory(&server) + 20_000));
        // Between the eviction before the transaction and UNLOCK the limit is passed.
        let replies: Vec<Value> = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg("filler:large")
            .arg("x".repeat(100_000))
            .arg("EX")
            .arg(10)
            .cmd("RWLOCK.UNLOCK")
            .arg("lock")
            .arg("a")
            // By the time of the next command it would have been tried again.
            .cmd("RWLOCK.INSPECT")
            .arg("lock")
            .query(&mut con)
            .expect("a transaction");
        assert_eq!(replies[1], Value::Int(1));
        assert_eq!(int(&map(&replies[2])["waiters_total"]), 0, "round {round}");
        waiter.granted();
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b")), 1);
        assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 0));
        // The server may have evicted it by now.
        run(&mut con, "DEL filler:large").expect("delete it");
    }
}

#[test]
fn nobody_is_granted_a_lock_while_replicas_are_missing() {
    let server = Server::builder().start();
    let set = |count: i64| {
        assert_ok(call!(server.connection(), "CONFIG", "SET", "min-replicas-to-write", count));
    };
    refused_until(&server, "min-replicas-to-write", 500, || set(1), || set(0));

    // Or until there is one.
    let mut replica = None;
    refused_until(
        &server,
        "a replica comes",
        500,
        || set(1),
        || {
            let builder = Server::builder().replica_of(&server);
            let started = builder.start();
            wait_synced(&server, &started);
            replica = Some(started);
        },
    );
}

#[test]
fn nobody_is_granted_a_lock_while_the_disk_fails() {
    let server = Server::builder().save_rdb().start();
    let mut con = server.connection();
    // A directory in the place of the file.
    let file = server.dir().join("dump.rdb");
    let block = || {
        fs::create_dir(&file).expect("make it");
        fs::write(file.join("x"), "").expect("it is not empty");
    };
    let status = |server: &Server| server.info("persistence")["rdb_last_bgsave_status"].clone();
    refused_until(
        &server,
        "stop-writes-on-bgsave-error",
        // The server sees only now and then that its child has failed.
        1_500,
        || {
            let mut con = server.connection();
            block();
            call!(con, "BGSAVE").expect("it begins");
            wait_until("it has failed", || status(&server) == "err");
            assert_error(run(&mut con, "RWLOCK.WLOCK other a 60000"), "MISCONF");
        },
        || {
            let mut con = server.connection();
            fs::remove_dir_all(&file).expect("remove it");
            call!(con, "BGSAVE").expect("it begins");
            wait_until("it has succeeded", || status(&server) == "ok");
        },
    );
    assert_eq!(int(run(&mut con, "DBSIZE")), 0);
}

/// UNLOCK, and in the same instant something that the first waiter's answer
/// cannot survive.
fn unlock_and(con: &mut Connection, lock: &str, words: &[&str], atomic: bool) {
    let mut pipe = redis::pipe();
    if atomic {
        pipe.atomic();
    }
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    pipe.cmd("RWLOCK.UNLOCK").arg(lock).arg("a").add_command(command);
    let replies: Vec<Value> = pipe.query(con).expect("both");
    assert_eq!(replies[0], Value::Int(1), "{words:?}");
}

#[test]
fn a_grant_whose_answer_is_lost_is_taken_back_and_the_queue_served() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for atomic in [true, false] {
        for (first, next) in [
            ("WLOCK lock b 60000 BLOCK 0", "WLOCK lock c 60000 BLOCK 0"),
            ("WLOCK lock b 60000 BLOCK 0 SESSION", "RLOCK lock c 60000 BLOCK 0"),
            ("RLOCK lock b 60000 BLOCK 0", "WLOCK lock c 60000 BLOCK 0"),
            ("RLOCK lock b 60000 SESSION BLOCK 0", "WLOCK lock c 60000 BLOCK 0"),
        ] {
            for end in ["CLIENT KILL ID", "CLIENT UNBLOCK", "CLIENT UNBLOCK ERROR"] {
                let what = format!("{first}, {next}, {end}, {atomic}");
                let mut late = Vec::new();
                for _ in 0..4 {
                    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
                    let mut lost = Client::waits(&server, first);
                    let mut waiter = Client::waits(&server, next);
                    let id = lost.id.to_string();
                    let words: Vec<&str> = match end {
                        "CLIENT KILL ID" => vec!["CLIENT", "KILL", "ID", &id],
                        "CLIENT UNBLOCK" => vec!["CLIENT", "UNBLOCK", &id],
                        _ => vec!["CLIENT", "UNBLOCK", &id, "ERROR"],
                    };
                    let unlocked = local_clock();
                    let mut pipe_con = server.connection();
                    unlock_and(&mut pipe_con, "lock", &words, atomic);
                    let reply = lost.reply();
                    if reply == Ok(Value::Okay) {
                        // It has it: newer servers unblock nobody who has been
                        // answered.
                        assert_ne!(end, "CLIENT KILL ID", "{what}");
                        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b")), 1, "{what}");
                    } else {
                        assert_ne!(reply, Ok(Value::Nil), "{what}: no answer at all");
                    }
                    waiter.granted();
                    late.push(local_clock() - unlocked);
                    let holders = list(inspect(&mut con, "lock", "holders"));
                    assert_eq!(holders.len(), 1, "{what}");
                    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock c")), 1, "{what}");
                    assert_eq!(int(run(&mut con, "DBSIZE")), 0, "{what}");
                }
                assert_prompt(&what, 20, &late);
            }
        }
    }
    // Nothing is in the way.
    unload(&mut con);
}

#[test]
fn a_holder_keeps_what_it_had_when_a_lost_grant_is_taken_back() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // b reads already, and its upgrade is lost.
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock b 60000"));
    let lost = Client::waits(&server, "UPGRADE lock b 60000 BLOCK 0");
    let id = lost.id.to_string();
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("RWLOCK.UNLOCK").arg("lock").arg("a").cmd("CLIENT").arg(&["KILL", "ID", &id]);
    let replies: Vec<i64> = pipe.query(&mut con).expect("both");
    assert_eq!(replies, [0, 1]);
    wait_until_within("it reads again", Duration::from_secs(5), || {
        int(run(&mut con, "HEXISTS lock b:write")) == 0
    });
    let holders = list(inspect(&mut con, "lock", "holders"));
    assert_eq!(holders.len(), 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b READ")), 1);
    assert_eq!(int(run(&mut con, "DBSIZE")), 0);
}

#[test]
fn a_waiter_that_leaves_in_the_instant_of_its_lapse_holds_nothing() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for round in 0..200 {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 8"));
        let lost = Client::sends(&server, "WLOCK lock b 60000 BLOCK 0");
        thread::sleep(Duration::from_micros(7_000 + 15 * round));
        drop(lost);
        let mut next = Client::sends(&server, "WLOCK lock c 60000 BLOCK 0");
        // It may have been granted before it left: then it is its hold, which
        // no session binds. Nobody else can tell.
        let held = |con: &mut Connection| list(inspect(con, "lock", "holders"));
        wait_until("somebody has it", || !held(&mut con).is_empty());
        if int(run(&mut con, "HEXISTS lock c:write")) == 0 {
            run(&mut con, "RWLOCK.UNLOCK lock b").ok();
        }
        next.granted();
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock c")), 1);
    }
    assert_eq!(list(run(&mut con, "RWLOCK.QUEUES")), []);
}

#[test]
fn a_lost_grant_that_is_taken_back_leaves_the_session_beside_it() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for _ in 0..3 {
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock w 60000"));
        let mut lapses = Client::waits(&server, "RLOCK lock a 20 BLOCK 0");
        let lost = Client::waits(&server, "RLOCK lock a 60000 BLOCK 0");
        let mut session = Client::waits(&server, "RLOCK lock a 60000 BLOCK 0 SESSION");
        // All three are granted; the second never hears of it, and when that is
        // noticed the first has lapsed.
        let mut pipe = redis::pipe();
        pipe.cmd("RWLOCK.UNLOCK").arg("lock").arg("w");
        pipe.cmd("CLIENT").arg("KILL").arg("ID").arg(lost.id);
        pipe.cmd("DEBUG").arg("SLEEP").arg("0.05");
        pipe.query::<()>(&mut con).expect("a pipeline");
        lapses.granted();
        session.granted();
        let holds = |con: &mut Connection| {
            list(inspect(con, "lock", "holders"))
                .iter()
                .map(|one| int(&map(one)["holds"]))
                .sum::<i64>()
        };
        wait_until("one is left", || holds(&mut con) == 1);
        drop(session);
        wait_until("none is left", || holds(&mut con) == 0);
    }
}
