//! MLOCK, MUNLOCK and MRENEW: several locks in one step, while nobody waits.

use redis::{Connection, RedisResult, Value};

use support::unchanged::assert_unchanged;
use support::{assert_error, assert_ok, call, error_text, int, list, send, text, Server};

/// Runs a command of the module, written without the prefix.
fn run(con: &mut Connection, command: &str) -> RedisResult<Value> {
    let mut words = command.split(' ').map(str::to_owned);
    let name = words.next().map(|name| format!("RWLOCK.{name}"));
    send(con, name.into_iter().chain(words))
}

#[track_caller]
fn ok(con: &mut Connection, command: &str) {
    assert_eq!(run(con, command), Ok(Value::Okay), "{command}");
}

/// The integers of an array.
#[track_caller]
fn gives(con: &mut Connection, command: &str, expected: &[i64]) {
    let given: Vec<i64> = list(run(con, command)).iter().map(int).collect();
    assert_eq!(given, expected, "{command}");
}

/// The command is refused with an integer of about so many ms.
#[track_caller]
fn refused(con: &mut Connection, command: &str, ms: i64) {
    let left = assert_unchanged(con, |con| int(run(con, command)));
    let is_near = if ms > 0 { (ms - 5_000..=ms).contains(&left) } else { left == ms };
    assert!(is_near, "{command}: {left}, expected {ms}");
}

/// The command ends in this error and changes nothing.
#[track_caller]
fn fails(con: &mut Connection, command: &str, error: &str) {
    let text = assert_unchanged(con, |con| failure(run(con, command)));
    assert_eq!(text, error, "{command}");
}

/// The text of the error that a command must end in.
#[track_caller]
fn failure(reply: RedisResult<Value>) -> String {
    error_text(&reply.expect_err("an error"))
}

fn keys(con: &mut Connection) -> Vec<String> {
    let mut keys: Vec<String> = list(call!(con, "KEYS", "*")).iter().map(text).collect();
    keys.sort();
    keys
}

#[test]
fn all_locks_are_taken_as_single_commands_would_take_them() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "MLOCK me 60000 READ 2 r1 r2 WRITE 1 w");
    let fields = |con: &mut Connection, key: &str| {
        let all = list(call!(con, "HGETALL", key)).iter().map(text).collect::<Vec<_>>();
        all.join(" ")
    };
    assert_eq!(fields(&mut con, "r1"), "mode read me 1");
    assert_eq!(fields(&mut con, "w"), "mode write me:write 1");
    assert_eq!(text(call!(con, "GET", "{r1}:me:rwlock_timeout:1")), "r1");
    // The options of each hold are those of the command.
    ok(&mut con, "MLOCK me 60000 ONCE WRITE 1 w READ 1 r1");
    assert_eq!(fields(&mut con, "r1"), "mode read me 1");
    assert_eq!(fields(&mut con, "w"), "mode write me:write 1");
    ok(&mut con, "MLOCK me 60000 read 1 r1 write 1 w");
    assert_eq!(fields(&mut con, "r1"), "mode read me 2");
    assert_eq!(fields(&mut con, "w"), "mode write me:write 2");
}

#[test]
fn one_lock_that_refuses_keeps_all_from_being_taken() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "WLOCK a x 50000");
    ok(&mut con, "WLOCK b x 90000");
    refused(&mut con, "MLOCK me 60000 WRITE 3 free a b", 90_000);
    refused(&mut con, "MLOCK me 60000 READ 1 a WRITE 1 free", 50_000);
    call!(con, "PERSIST", "a").expect("persist");
    refused(&mut con, "MLOCK me 60000 WRITE 3 free a b", -1);
    // A lock that the owner reads is refused to its own write, with and without BLOCK.
    ok(&mut con, "RLOCK c me 30000");
    refused(&mut con, "MLOCK me 60000 WRITE 2 c free", 30_000);
    let error = "DEADLOCK me reads this lock and would wait for itself";
    fails(&mut con, "MLOCK me 60000 WRITE 2 c free BLOCK 0", error);
    // In a transaction BLOCK does not wait.
    assert_ok(call!(con, "MULTI"));
    run(&mut con, "MLOCK me 60000 WRITE 2 b free BLOCK 0").expect("queue it");
    let left = list(call!(con, "EXEC"));
    assert!((85_000..=90_000).contains(&int(&left[0])), "{left:?}");
}

#[test]
fn each_write_lock_has_a_token_in_the_order_given() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let tokens = |reply: RedisResult<Value>| -> Vec<i64> {
        let reply = list(reply);
        assert_eq!(reply[0], Value::Okay);
        reply[1..].iter().map(int).collect()
    };
    let first = tokens(run(&mut con, "MLOCK me 60000 FENCE READ 1 r WRITE 3 c a b"));
    assert_eq!(first.len(), 3);
    for (lock, token) in ["c", "a", "b"].iter().zip(&first) {
        let stored = text(call!(con, "GET", format!("{{{lock}}}:rwlock_fence")));
        assert_eq!(stored, token.to_string());
    }
    let again = tokens(run(&mut con, "MLOCK me 60000 WRITE 2 b c FENCE"));
    assert_eq!(again, [first[2], first[0]], "a tenure keeps its token");
    assert!(call!(con, "EXISTS", "{r}:rwlock_fence").is_ok_and(|there| there == Value::Int(0)));
}

#[test]
fn each_lock_is_given_back_or_has_no_such_hold() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "MLOCK me 60000 READ 2 a b WRITE 2 c d");
    ok(&mut con, "RLOCK a other 60000");
    ok(&mut con, "RLOCK c me 60000");
    gives(&mut con, "MUNLOCK me READ 3 a b x WRITE 2 b c", &[0, 1, -1, -1, 0]);
    gives(&mut con, "MUNLOCK me ALL 3 d c a", &[1, 1, -1]);
    gives(&mut con, "MUNLOCK other all 1 a", &[1]);
    assert_eq!(keys(&mut con), Vec::<String>::new());
    // A lock may stand in two clauses.
    ok(&mut con, "WLOCK a me 60000");
    ok(&mut con, "RLOCK a me 60000");
    gives(&mut con, "MUNLOCK me WRITE 1 a READ 1 a", &[0, 1]);
    // ALL withdraws the reservation of the owner.
    ok(&mut con, "WLOCK a you 60000");
    run(&mut con, "WLOCK a me 60000 RESERVE 60000").expect("reserve");
    gives(&mut con, "MUNLOCK me ALL 1 a", &[0]);
    gives(&mut con, "MUNLOCK you ALL 1 a", &[1]);
    assert_eq!(keys(&mut con), Vec::<String>::new());
}

#[test]
fn each_lock_is_renewed_or_not_held() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "MLOCK me 60000 READ 1 a WRITE 1 b");
    ok(&mut con, "WLOCK c you 60000");
    gives(&mut con, "MRENEW me 300000 a x b c a", &[1, 0, 1, 0, 1]);
    for (key, least) in [("a", 290_000), ("{a}:me:rwlock_timeout:1", 290_000), ("b", 290_000)] {
        assert!(int(call!(con, "PTTL", key)) >= least, "{key}");
    }
    assert!(int(call!(con, "PTTL", "c")) <= 60_000);
}

#[test]
fn a_grant_consumes_the_owner_s_reservation() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "RLOCK a you 60000");
    run(&mut con, "WLOCK a me 60000 RESERVE 60000").expect("reserve");
    assert_eq!(int(run(&mut con, "UNLOCK a you")), 1);
    refused(&mut con, "MLOCK you 60000 WRITE 2 a b", 60_000);
    ok(&mut con, "MLOCK me 60000 WRITE 2 a b");
    assert_eq!(keys(&mut con), ["a", "b"]);
}

#[test]
fn bad_arguments_get_one_error_and_change_nothing() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "WLOCK held me 60000");
    let lease = "ERR invalid expire time in 'rwlock.mlock' command: the lease is an integer of \
                 milliseconds, 1 or more";
    let number = "ERR numkeys is not an integer, 1 or more";
    let few = "ERR numkeys is larger than the number of keys that follow";
    for (command, error) in [
        ("MLOCK me 0 WRITE 1 a", lease),
        ("MLOCK me 30s WRITE 1 a", lease),
        ("MLOCK me 9223372036854775807 WRITE 1 a", lease),
        ("MLOCK me 1000 WRITE 0 a", number),
        ("MLOCK me 1000 WRITE -1 a", number),
        ("MLOCK me 1000 WRITE a 1", number),
        ("MLOCK me 1000 WRITE 9223372036854775807 a", few),
        ("MLOCK me 1000 WRITE 2 a", few),
        ("MLOCK me 1000 READ 1 a WRITE 1", few),
        ("MLOCK me 1000 WRITE 1 a b", "ERR syntax error near 'b'"),
        ("MLOCK me 1000 WRITE 1 a WRITE 1 b", "ERR syntax error near 'WRITE'"),
        ("MLOCK me 1000 WRITE 1 a BLOCK", "ERR syntax error near 'BLOCK'"),
        ("MLOCK me 1000 WRITE 1 a BLOCK 0 BLOCK 0", "ERR syntax error near 'BLOCK'"),
        ("MLOCK me 1000 WRITE 1 a BLOCK -1", "ERR timeout is negative"),
        ("MLOCK me 1000 WRITE 1 a RESERVE 1000", "ERR syntax error near 'RESERVE'"),
        ("MLOCK me 1000 READ 1 a FENCE", "ERR syntax error near 'FENCE'"),
        ("MLOCK me 1000 BLOCK 0 SESSION", "ERR syntax error near 'SESSION'"),
        ("MLOCK me 1000 WRITE 2 a a", "ERR lock a is named twice"),
        ("MLOCK me 1000 READ 1 a WRITE 2 b a", "ERR lock a is named twice"),
        ("MLOCK me 1000 WRITE 3 b a {a}", "ERR key clash with lock a"),
        ("MLOCK mode 1000 WRITE 1 a", "ERR owner must not be 'mode' nor end in ':write'"),
        ("MUNLOCK me WRITE 0 held", number),
        ("MUNLOCK me WRITE 2 held", few),
        ("MUNLOCK me READ 2 held held", "ERR lock held is named twice"),
        ("MUNLOCK me ANY 1 held", "ERR syntax error near 'ANY'"),
        ("MUNLOCK me WRITE 1 held READ 1 a READ 1 b", "ERR syntax error near 'READ'"),
        ("MRENEW me 0 held", &lease.replace("mlock", "mrenew")),
    ] {
        fails(&mut con, command, error);
    }
    for command in ["MLOCK me 1000 WRITE 1", "MUNLOCK me WRITE 1", "MRENEW me 1000"] {
        let error = assert_unchanged(&mut con, |con| failure(run(con, command)));
        assert!(error.starts_with("ERR wrong number of arguments"), "{command}: {error}");
    }
}

#[test]
fn there_may_be_1024_locks_and_no_more() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let names = |count: usize| (0..count).map(|n| format!(" l{n}")).collect::<String>();
    let error = "ERR a command names at most 1024 locks";
    fails(&mut con, &format!("MLOCK me 60000 WRITE 1025{}", names(1025)), error);
    fails(&mut con, &format!("MLOCK me 60000 READ 1 r WRITE 1024{}", names(1024)), error);
    fails(&mut con, &format!("MRENEW me 60000{}", names(1025)), error);
    ok(&mut con, &format!("MLOCK me 60000 WRITE 1024{}", names(1024)));
    gives(&mut con, &format!("MRENEW me 60000{}", names(1024)), &[1; 1024]);
    gives(&mut con, &format!("MUNLOCK me WRITE 1024{}", names(1024)), &[1; 1024]);
    assert_eq!(keys(&mut con), Vec::<String>::new());
}

#[test]
fn a_lock_that_cannot_be_used_keeps_all_from_being_taken() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "SET", "text", "x"));
    call!(con, "HSET", "hash", "field", "x").expect("make a hash");
    call!(con, "HSET", "no-lock", "mode", "neither").expect("make a hash");
    assert_ok(call!(con, "SET", "{r}:me:rwlock_timeout:1", "another"));
    ok(&mut con, "WLOCK held me 60000");
    for (names, error) in [
        ("WRITE 3 a text b", "WRONGTYPE"),
        ("WRITE 2 a hash", "WRONGTYPE"),
        ("READ 1 a WRITE 1 no-lock", "WRONGTYPE"),
        ("WRITE 2 a x:wait_write", "ERR a name that ends in :wait_write"),
        ("WRITE 1 a READ 2 b r", "ERR key clash with lock another"),
    ] {
        let command = format!("MLOCK me 60000 {names}");
        let told = assert_unchanged(&mut con, |con| failure(run(con, &command)));
        assert!(told.starts_with(error), "{command}: {told}");
    }
    for command in ["MUNLOCK me WRITE 2 held text", "MRENEW me 90000 held text"] {
        assert_unchanged(&mut con, |con| assert_error(run(con, command), "WRONGTYPE"));
    }
    // The rights of a lock with tokens: its fence key is no number.
    assert_ok(call!(con, "SET", "{f}:rwlock_fence", "x"));
    let command = "MLOCK me 60000 WRITE 2 a f FENCE";
    assert_unchanged(&mut con, |con| assert_error(run(con, command), "WRONGTYPE"));
}

/// MRENEW is RENEW of each lock, so it does not read the holds of others either.
#[test]
fn what_a_stranger_wrote_beside_the_hold_hinders_mrenew_as_little_as_renew() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "MLOCK me 60000 WRITE 2 a b");
    assert_eq!(int(call!(con, "HSET", "a", "stranger", "x")), 1);
    ok(&mut con, "RENEW a me 60000");
    gives(&mut con, "MRENEW me 60000 b a", &[1, 1]);
}

#[test]
fn without_memory_nothing_is_taken_and_all_is_given_back() {
    let server = Server::builder().start();
    let mut con = server.connection();
    ok(&mut con, "MLOCK me 60000 WRITE 2 a b");
    assert_ok(call!(con, "CONFIG", "SET", "maxmemory", "1"));
    assert_unchanged(&mut con, |con| {
        assert_error(run(con, "MLOCK me 60000 WRITE 2 c d"), "OOM");
    });
    gives(&mut con, "MRENEW me 90000 a b", &[1, 1]);
    gives(&mut con, "MUNLOCK me ALL 2 a b", &[1, 1]);
}

#[test]
fn a_replica_takes_nothing() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut con = replica.connection();
    for command in ["MLOCK me 60000 WRITE 1 a", "MUNLOCK me WRITE 1 a", "MRENEW me 60000 a"] {
        assert_error(run(&mut con, command), "READONLY");
    }
}
