//! While a script or a transaction runs the server's time stands still, and no
//! key expires.

use std::time::Instant;

use redis::Connection;

use support::{assert_error, assert_ok, call, int, list, text, wait_until, Crowd, Server};

/// A lease, long enough for a busy machine to get to the script, and for how long the time
/// stands still, in ms.
const LEASE: usize = 1_500;
const STOP: usize = 2_000;

/// Each lock is looked at when its lease is over by the clock: a command, and
/// the start of its answer.
const LOOKS: [(&str, &str); 9] = [
    ("RENEW read a 60000", "OK"),
    ("UNLOCK given a", "1"),
    ("WLOCK other b 60000", "int"),
    ("RLOCK twice a 60000", "OK"),
    ("UPGRADE upgraded a 60000", "OK"),
    ("RENEW written a 60000", "OK"),
    ("DOWNGRADE down a 60000", "OK"),
    ("RLOCK kept b 60000", "int"),
    ("WLOCK reserved b 60000", "int"),
];

fn prepare(crowd: &mut Crowd<'_>) {
    crowd.plain("FLUSHALL");
    for lock in ["read", "given", "other", "twice", "upgraded"] {
        crowd.ok(&format!("RLOCK {lock} a {LEASE}"));
    }
    for lock in ["written", "down", "kept"] {
        crowd.ok(&format!("WLOCK {lock} a {LEASE}"));
    }
    crowd.ok("WLOCK reserved c 60000");
    crowd.refused(&format!("WLOCK reserved a {LEASE} RESERVE {LEASE}"));
    crowd.gives("UNLOCK reserved c", 1);
}

#[track_caller]
fn assert_answers(answers: &[redis::Value]) {
    for ((command, expected), answer) in LOOKS.iter().zip(answers) {
        match *expected {
            "int" => assert!(matches!(answer, redis::Value::Int(_)), "{command}: {answer:?}"),
            "1" => assert_eq!(int(answer), 1, "{command}"),
            expected => assert_eq!(text(answer), expected, "{command}"),
        }
    }
}

#[test]
fn no_lease_lapses_in_a_script() {
    // On a busy machine the script takes some seconds. After five the server would serve
    // others meanwhile, and its time would go on.
    let server = Server::builder().config("busy-reply-threshold", 0).start();
    let mut crowd = Crowd::on(&server);
    let calls: String = LOOKS
        .iter()
        .map(|(command, _)| {
            let words: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
            let words = words.join(",").replacen('\'', "'RWLOCK.", 1);
            format!("answers[#answers + 1] = redis.call({words})\n")
        })
        .collect();
    let turns = turns(&mut crowd.con, 2 * LEASE);
    prepare(&mut crowd);
    let script = format!("for i = 1, {turns} do end local answers = {{}}\n{calls} return answers");
    let began = Instant::now();
    let answers = list(call!(crowd.con, "EVAL", script, 0));
    assert!(began.elapsed().as_millis() > LEASE as u128, "the script was too short");
    assert_answers(&answers);
}

/// How many turns of a loop take a script so many ms. No clock of Lua's is there on
/// every server.
fn turns(con: &mut Connection, ms: usize) -> usize {
    const SOME: usize = 10_000_000;
    // The quickest of some: on a busy machine the server gets a processor only now and then.
    let took = (0..6).map(|_| {
        let began = Instant::now();
        call!(con, "EVAL", format!("for i = 1, {SOME} do end"), 0).expect("it ends");
        usize::try_from(began.elapsed().as_micros()).expect("a short while")
    });
    let took = took.min().expect("some");
    SOME / took.max(1) * 1_000 * ms
}

/// Has the server sleep so many ms.
fn sleep(ms: usize) -> String {
    format!("DEBUG SLEEP {}.{:03}", ms / 1_000, ms % 1_000)
}

#[test]
fn no_lease_lapses_in_a_transaction() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    prepare(&mut crowd);
    crowd.plain("MULTI");
    crowd.plain(&sleep(STOP));
    for (command, _) in LOOKS {
        crowd.run(command).expect("queue");
    }
    assert_answers(&list(crowd.plain("EXEC"))[1..]);
}

/// What is remembered of many readers does not keep the server busy for ever.
#[test]
fn a_lock_with_many_readers_is_looked_at_while_the_time_stands_still() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let mut readers = redis::pipe();
    for reader in 0..100 {
        readers.cmd("RWLOCK.RLOCK").arg(&["k", &format!("r{reader}"), &LEASE.to_string()]).ignore();
    }
    readers.query::<()>(&mut crowd.con).expect("all read");
    crowd.ok("RLOCK k long 60000");
    crowd.plain("MULTI");
    crowd.plain(&sleep(STOP));
    crowd.run("RENEW k r7 60000").expect("queue");
    crowd.run("WLOCK k w 1000").expect("queue");
    let answers = list(crowd.plain("EXEC"));
    assert_ok(answers[1].clone());
    assert!(int(&answers[2]) > 0);
    wait_until("the others have lapsed", || crowd.holders("k") == "long read, r7 read");
}

#[test]
fn what_had_lapsed_before_is_gone_in_a_script_too() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    crowd.plain("DEBUG SET-ACTIVE-EXPIRE 0");
    crowd.ok("RLOCK k a 50");
    crowd.ok("RLOCK k b 60000");
    let script = "return redis.pcall('RWLOCK.RENEW', 'k', 'a', '1000')";
    wait_until("it has lapsed", || int(crowd.plain("EXISTS {k}:a:rwlock_timeout:1")) == 0);
    assert_error(redis::cmd("EVAL").arg(script).arg(0).query(&mut crowd.con), "NOTHELD");
}
