//! FENCE: who gets a new token, who gets the same one again, and what the
//! commands answer.

use redis::{Connection, RedisResult, Value};

use support::observe::{inspect, run};
use support::redisson::Redisson;
use support::{assert_error, assert_ok, call, int, list, refused, text, wait_until, Call, Server};

/// The token of a reply, which is `OK` and a token, and no other. It is one
/// that any language can count.
#[track_caller]
pub fn token(reply: RedisResult<Value>) -> i64 {
    match reply.as_ref().map(|reply| match reply {
        Value::Array(items) => &items[..],
        _ => &[],
    }) {
        Ok([Value::Okay, Value::Int(token)]) if (1..1 << 53).contains(token) => *token,
        _ => panic!("no OK with a token: {reply:?}"),
    }
}

/// Runs a command of the module that is answered with a token.
#[track_caller]
pub fn fenced(con: &mut Connection, line: &str) -> i64 {
    token(run(con, &format!("RWLOCK.{line}")))
}

/// Runs a command of the module that is answered with `OK` alone.
#[track_caller]
fn ok(con: &mut Connection, line: &str) {
    assert_ok(run(con, &format!("RWLOCK.{line}")));
}

/// The server's unix time in µs.
#[track_caller]
pub fn micros(con: &mut Connection) -> i64 {
    support::micros(run(con, "TIME"))
}

#[test]
fn a_token_is_the_time_in_microseconds_or_the_next_number() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for way in ["WLOCK k a 60000 FENCE", "WLOCK k a 60000 fence BLOCK 0 ONCE SESSION"] {
        let before = micros(&mut con);
        let first = fenced(&mut con, way);
        assert!((before..=micros(&mut con)).contains(&first), "{before} {first}");
        assert_eq!(text(call!(con, "GET", "{k}:rwlock_fence")), first.to_string());
        assert_eq!(int(inspect(&mut con, "k", "fence")), first);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    }
    // The clock was ahead once, by a day.
    let ahead = micros(&mut con) + 86_400_000_000;
    assert_ok(call!(con, "SET", "{k}:rwlock_fence", ahead));
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), ahead + 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    assert_eq!(fenced(&mut con, "WLOCK k b 60000 FENCE"), ahead + 2);
}

#[test]
fn the_reply_is_the_same_in_both_protocols() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut con3 = server.connection_resp3();
    for con in [&mut con, &mut con3] {
        assert!(fenced(con, "WLOCK k a 60000 FENCE") > 0);
        // Who is refused is told the time, as always.
        assert!(int(run(con, "RWLOCK.WLOCK k b 60000 FENCE")) > 50_000);
        assert!(int(run(con, "RWLOCK.WLOCK k b 60000 FENCE BLOCK 1")) > 50_000);
        assert_eq!(int(run(con, "RWLOCK.UNLOCK k a")), 1);
        ok(con, "RLOCK k a 60000");
        ok(con, "RLOCK k b 60000");
        assert!(int(run(con, "RWLOCK.UPGRADE k a 60000 FENCE")) > 50_000);
        assert_error(run(con, "RWLOCK.UPGRADE k c 60000 FENCE"), "NOTHELD");
        assert_eq!(int(run(con, "RWLOCK.FORCEUNLOCK k")), 1);
    }
}

#[test]
fn only_writers_get_tokens() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for command in ["RLOCK", "UNLOCK", "RENEW", "DOWNGRADE", "FORCEUNLOCK", "INSPECT"] {
        refused!(&mut con, "ERR", format!("RWLOCK.{command}"), "k", "a", 60_000, "FENCE");
    }
    // And whoever asks for none leaves none.
    ok(&mut con, "WLOCK k a 60000");
    assert_eq!(int(run(&mut con, "EXISTS {k}:rwlock_fence")), 0);
    // Nor does one who is refused.
    assert!(int(run(&mut con, "RWLOCK.WLOCK k b 60000 FENCE RESERVE 60000")) > 0);
    assert_eq!(int(run(&mut con, "EXISTS {k}:rwlock_fence")), 0);
}

#[test]
fn a_first_write_hold_gets_a_new_token_however_the_last_one_ended() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut last = 0;
    for end in [
        "RWLOCK.UNLOCK k a",
        "RWLOCK.UNLOCK k a ALL",
        "RWLOCK.FORCEUNLOCK k",
        "RWLOCK.FORCEUNLOCK k WRITE",
        "DEL k",
        "DEL k {k}:rwlock_fence",
        "UNLINK {k}:rwlock_fence k",
        "PEXPIRE k 0",
        "RENAME k gone",
        "FLUSHALL",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "SWAPDB 0 1",
        "DEBUG RELOAD",
    ] {
        for _ in 0..3 {
            let next = fenced(&mut con, "WLOCK k a 60000 FENCE");
            assert!(next > last, "{next} after {last}, {end}");
            last = next;
            run(&mut con, end).expect(end);
            run(&mut con, "RWLOCK.FORCEUNLOCK k").expect("free it, if it is not");
        }
    }
    // By its own lease.
    for _ in 0..3 {
        let next = fenced(&mut con, "WLOCK k a 2 FENCE");
        assert!(next > last, "{next} after {last}");
        last = next;
        wait_until("it lapses", || text(inspect(&mut con, "k", "mode")) == "free");
    }
}

#[test]
fn a_reentrant_grant_repeats_the_token_of_its_tenure() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    for again in
        ["WLOCK k a 60000 FENCE", "WLOCK k a 60000 FENCE ONCE", "WLOCK k a 1 FENCE BLOCK 0"]
    {
        assert_eq!(fenced(&mut con, again), first, "{again}");
    }
    assert_eq!(fenced(&mut server.connection(), "WLOCK k a 60000 SESSION FENCE ONCE"), first);
    // Whatever else goes on in it.
    for between in [
        "WLOCK k a 60000",
        "RLOCK k a 60000",
        "UPGRADE k a 60000",
        "RENEW k a 90000",
        "UNLOCK k a READ",
        "UNLOCK k a WRITE",
        "INSPECT k",
        "FORCEUNLOCK k READ",
    ] {
        run(&mut con, &format!("RWLOCK.{between}")).expect(between);
        assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), first, "{between}");
    }
    assert!(int(run(&mut con, "RWLOCK.WLOCK k b 60000")) > 0);
    for plain in ["PEXPIRE k 90000", "PERSIST k", "PEXPIRE k 90000"] {
        assert_eq!(int(run(&mut con, plain)), 1);
        assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), first, "{plain}");
    }
    ok(&mut con, "RLOCK k a 60000");
    assert_eq!(fenced(&mut con, "UPGRADE k a 60000 FENCE"), first);
    // Down to the first of its holds, and up again.
    let holds =
        int(call!(con, "HGET", "k", "a:write").map(|n| Value::Int(text(n).parse().unwrap_or(0))));
    assert!(holds > 5);
    for _ in 1..holds {
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a WRITE")), 0);
    }
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), first);
}

#[test]
fn a_tenure_without_a_token_gets_a_new_one() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    // The same owner, and another one, whose first hold has none.
    for owner in ["a", "b"] {
        ok(&mut con, &format!("WLOCK k {owner} 60000"));
        let second = fenced(&mut con, &format!("WLOCK k {owner} 60000 FENCE"));
        assert!(second > first);
        assert_eq!(fenced(&mut con, &format!("WLOCK k {owner} 60000 FENCE")), second);
        assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK k {owner} ALL"))), 1);
    }
    // One that reads in between begins anew.
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    ok(&mut con, "DOWNGRADE k a 60000");
    let second = fenced(&mut con, "UPGRADE k a 60000 FENCE");
    assert!(second > first);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a WRITE")), 0);
    ok(&mut con, "UPGRADE k a 60000");
    let third = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert!(third > second);
    assert_eq!(fenced(&mut con, "UPGRADE k a 60000 FENCE"), third);
}

#[test]
fn a_token_is_not_repeated_when_it_is_not_the_last_any_more() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    for (change, least) in [
        (format!("SET {{k}}:rwlock_fence {}", first + 86_400_000_000), first + 86_400_000_001),
        ("DEL {k}:rwlock_fence".to_owned(), first + 1),
        ("SET {k}:rwlock_fence 1".to_owned(), first + 1),
    ] {
        run(&mut con, &change).expect("change the key");
        let next = fenced(&mut con, "WLOCK k a 60000 FENCE ONCE");
        assert!(next >= least, "{change}");
        assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE ONCE"), next, "{change}");
        assert_eq!(text(call!(con, "GET", "{k}:rwlock_fence")), next.to_string());
    }
    // Two locks that share the key, as they share all that is not the hash.
    let first = fenced(&mut con, "WLOCK {k} c 60000 FENCE");
    let second = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert!(second > first);
    assert!(fenced(&mut con, "WLOCK {k} c 60000 FENCE") > second);
}

#[test]
fn what_happens_behind_the_module_s_back_ends_a_tenure() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let scripts = Redisson::load(&mut con).expect("load the scripts");
    // A script turns the writer into a reader, and nobody waits.
    ok(&mut con, "RLOCK k a 60000");
    let first = fenced(&mut con, "UPGRADE k a 60000 FENCE");
    assert_eq!(int(con.call(&scripts.write_unlock("k", "a", "1"))), 1);
    ok(&mut con, "UPGRADE k a 60000");
    let second = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert!(second > first);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a WRITE")), 0);
    assert_eq!(int(con.call(&scripts.write_unlock("k", "a", "2"))), 1);
    assert!(fenced(&mut con, "UPGRADE k a 60000 FENCE") > second);
    // A script gives the lock back, and the same owner takes it by a script.
    assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK k")), 1);
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(int(con.call(&scripts.write_unlock("k", "a", "3"))), 1);
    assert_eq!(con.call(&scripts.write_lock("k", "a", 60_000)), Ok(Value::Nil));
    let second = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert!(second > first);
    // In one step: nothing has time to look.
    assert_ok(run(&mut con, "MULTI"));
    for line in ["DEL k", "HSET k mode write a:write 1", "RWLOCK.WLOCK k a 60000 FENCE"] {
        assert_eq!(text(run(&mut con, line)), "QUEUED");
    }
    let third = token(Ok(list(run(&mut con, "EXEC"))[2].clone()));
    assert!(third > second);
    // Another lock in its place.
    ok(&mut con, "WLOCK other b 60000");
    assert_ok(run(&mut con, "RENAME other k"));
    let fourth = fenced(&mut con, "WLOCK k b 60000 FENCE");
    assert!(fourth > third);
}

#[test]
fn a_lapse_that_nobody_saw_ends_a_tenure() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for next in ["a", "b"] {
        // The server sleeps through it, and has no time to look either.
        let mut pipe = redis::pipe();
        pipe.cmd("RWLOCK.WLOCK").arg("k").arg("a").arg(5).arg("FENCE");
        pipe.cmd("DEBUG").arg("SLEEP").arg("0.02");
        pipe.cmd("RWLOCK.WLOCK").arg("k").arg(next).arg(60_000);
        pipe.cmd("RWLOCK.WLOCK").arg("k").arg(next).arg(60_000).arg("FENCE");
        let replies: Vec<Value> = pipe.query(&mut con).expect("all replies");
        assert_ok(&replies[2]);
        assert!(token(Ok(replies[3].clone())) > token(Ok(replies[0].clone())), "{next}");
        assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK k")), 1);
    }
}

#[test]
fn tokens_increase_within_a_transaction_and_a_script() {
    let server = Server::builder().start();
    let mut con = server.connection();
    // The server's clock stands still in both, and the last token is lost.
    let script = "local tokens = {}
        for turn = 1, 200 do
            local got = redis.call('RWLOCK.WLOCK', KEYS[1], 'a', 60000, 'BLOCK', 0, 'FENCE')
            assert(got[1].ok == 'OK')
            tokens[turn] = got[2]
            redis.call('RWLOCK.UNLOCK', KEYS[1], 'a')
            redis.call('DEL', '{' .. KEYS[1] .. '}:rwlock_fence')
        end
        return tokens";
    let mut tokens: Vec<i64> =
        list(call!(con, "EVAL", script, 1, "k")).into_iter().map(int).collect();
    let mut pipe = redis::pipe();
    pipe.atomic();
    for _ in 0..100 {
        pipe.cmd("RWLOCK.WLOCK").arg("k").arg("a").arg(60_000).arg("FENCE");
        pipe.cmd("RWLOCK.UNLOCK").arg("k").arg("a");
        pipe.cmd("DEL").arg("{k}:rwlock_fence");
    }
    let replies: Vec<Value> = pipe.query(&mut con).expect("the replies of EXEC");
    tokens.extend(replies.iter().step_by(3).map(|reply| token(Ok(reply.clone()))));
    assert_eq!(tokens.len(), 300);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    // SESSION is refused in a script, FENCE or not.
    let session = "return redis.pcall('RWLOCK.WLOCK', KEYS[1], 'a', 60000, 'SESSION', 'FENCE')";
    refused!(&mut con, "ERR", "EVAL", session, 1, "k");
}

#[test]
fn databases_have_tokens_of_their_own() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let ahead = micros(&mut con) + 86_400_000_000;
    assert_ok(call!(con, "SET", "{k}:rwlock_fence", ahead));
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), ahead + 1);
    assert_ok(run(&mut con, "SELECT 1"));
    assert!(fenced(&mut con, "WLOCK k a 60000 FENCE") < ahead);
    assert_ok(run(&mut con, "SELECT 0"));
    assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), ahead + 1);
}
