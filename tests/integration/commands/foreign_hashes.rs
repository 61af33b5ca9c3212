//! Keys of other types and content where a lock's keys belong:
//! the right error, and nothing is written.

use std::time::{Duration, Instant};

use redis::{Connection, Value};

use support::every_command::{self, Command};
use support::unchanged::{assert_unchanged, snapshot};
use support::{
    assert_error, assert_ok, call, error_text, int, list, map, refused, send, text, wait_until,
    Server,
};

/// Makes a key of each type but the hash. The first word is the command, the
/// key comes second.
pub const OTHER_TYPES: [&[&str]; 6] = [
    &["SET", "text"],
    &["SET", ""],
    &["RPUSH", "a", "b"],
    &["SADD", "mode", "me"],
    &["ZADD", "1", "mode"],
    &["XADD", "*", "mode", "read"],
];

/// What is no count of holds.
pub const BAD_COUNTS: [&str; 16] = [
    "",
    " ",
    "x",
    "0",
    "-1",
    "-9223372036854775808",
    "1.0",
    "1e3",
    "+1",
    "01",
    " 1",
    "1 ",
    "1\0",
    "0x1",
    "9223372036854775808",
    "99999999999999999999999999",
];

pub fn make(con: &mut Connection, words: &[&str], key: &str) {
    let mut command = words.to_vec();
    command.insert(1, key);
    at_once(con, &[&command, &["PEXPIRE", key, "600000"]]);
}

/// In one transaction: a lock whose keys are not all there yet would be taken
/// for one whose holds have lapsed, and cleaned up.
fn at_once(con: &mut Connection, commands: &[&[&str]]) {
    assert_ok(call!(con, "MULTI"));
    for command in commands {
        assert_eq!(text(send(con, *command)), "QUEUED");
    }
    for (command, reply) in commands.iter().zip(list(call!(con, "EXEC"))) {
        assert!(!matches!(reply, Value::ServerError(_)), "{command:?}: {reply:?}");
    }
}

/// A hash in the place of the lock `k`, and a timeout key for the first hold of
/// each of these owners.
fn hash(con: &mut Connection, fields: &[(&str, &str)], timeouts: &[&str]) {
    let fields = fields.iter().flat_map(|(field, value)| [*field, *value]);
    let write: Vec<&str> = ["HSET", "k"].into_iter().chain(fields).collect();
    let names = timeouts.iter().map(|owner| format!("{{k}}:{owner}:rwlock_timeout:1"));
    let names: Vec<String> = names.collect();
    let set = names.iter().map(|name| ["SET", name, "k", "PX", "500000"]);
    let set: Vec<_> = set.collect();
    let mut commands = vec![&["DEL", "k"][..], &write, &["PEXPIRE", "k", "600000"]];
    commands.extend(set.iter().map(|command| &command[..]));
    at_once(con, &commands);
}

fn all_refused(con: &mut Connection, commands: impl Iterator<Item = &'static Command>) {
    for command in commands {
        command.refused(con, b"k", b"me", "WRONGTYPE");
    }
}

#[test]
fn a_key_of_another_type_is_no_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for words in OTHER_TYPES {
        make(&mut con, words, "k");
        all_refused(&mut con, every_command::all());
        assert_ok(call!(con, "FLUSHALL"));
    }
}

#[test]
fn a_hash_without_a_known_mode_is_no_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let hashes: [&[(&str, &str)]; 9] = [
        &[("me", "1")],
        &[("me:write", "1")],
        &[("name", "Ann"), ("age", "40")],
        &[("mode", ""), ("me", "1")],
        &[("mode", "READ"), ("me", "1")],
        &[("mode", "writE"), ("me:write", "1")],
        &[("mode", "read "), ("me", "1")],
        &[("mode", "1")],
        &[("Mode", "read"), ("me", "1")],
    ];
    for fields in hashes {
        hash(&mut con, fields, &["me"]);
        all_refused(&mut con, every_command::all());
    }
}

#[test]
fn a_hash_in_write_mode_without_a_writer_is_no_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let transaction = "me:write:0123456789abcdef";
    let hashes: [&[(&str, &str)]; 5] = [
        &[("mode", "write")],
        // As a transaction of Redisson locks it.
        &[("mode", "write"), (transaction, "1")],
        &[("mode", "write"), ("other", "1")],
        &[("mode", "write"), ("me", "1")],
        &[("mode", "write"), ("me", "1"), (transaction, "1")],
    ];
    for fields in hashes {
        for timeouts in [&[][..], &["me"], &["other"]] {
            hash(&mut con, fields, timeouts);
            all_refused(&mut con, every_command::all());
        }
    }
}

#[test]
fn a_hash_in_write_mode_without_a_writer_is_left_alone_by_alarms_and_fails_waiters() {
    let server = Server::builder().start();
    let mut con = server.connection();
    hash(&mut con, &[("mode", "write"), ("me:write:1", "1")], &[]);
    let before = snapshot(&mut con);
    // The sweep meets it.
    assert_ok(call!(con, "DEBUG", "RELOAD"));
    wait_until("the sweep is done", || server.info("rwlock")["rwlock_sweep"] == "done");
    assert_eq!(snapshot(&mut con), before);

    // In the place of a lock that is waited for.
    assert_ok(call!(con, "RWLOCK.WLOCK", "held", "a", 60_000));
    let mut crowd = support::Crowd::on(&server);
    let mut waiter = crowd.waits("WLOCK held b 60000 BLOCK 0");
    assert_ok(call!(con, "RENAME", "k", "held"));
    waiter.fails("WRONGTYPE");
    let queues = list(call!(con, "RWLOCK.QUEUES"));
    assert_eq!(queues, []);
    let after = snapshot(&mut con);
    assert_eq!(after.values().collect::<Vec<_>>(), before.values().collect::<Vec<_>>());
}

#[test]
fn a_count_that_is_no_positive_integer_makes_a_hash_no_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for count in BAD_COUNTS {
        for (mode, field) in [("read", "me"), ("write", "me:write"), ("write", "me")] {
            hash(&mut con, &[("mode", mode), (field, count)], &["me"]);
            all_refused(&mut con, every_command::all());
        }
        // The count of the other kind.
        hash(&mut con, &[("mode", "write"), ("me:write", "1"), ("me", count)], &[]);
        all_refused(&mut con, every_command::all());
    }
}

#[test]
fn a_bad_count_of_another_owner_is_met_or_left_alone_but_never_written_over() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for count in BAD_COUNTS {
        for (mode, own) in [("read", "me"), ("write", "me:write")] {
            for bad in ["other", "other:write"] {
                for command in every_command::all() {
                    let fields = [("mode", mode), (own, "1"), (bad, count)];
                    hash(&mut con, &fields, &["me", "other"]);
                    let before = snapshot(&mut con);
                    let result = command.call(&mut con, b"k", b"me");
                    // Those that tell or remove all there is have to read it.
                    let reads_all = ["RWLOCK.INSPECT", "RWLOCK.FORCEUNLOCK"];
                    if reads_all.contains(&command.name) {
                        assert!(result.is_err(), "{}: {result:?}", command.name);
                    }
                    if result.is_err() {
                        let error = error_text(&result.expect_err("an error"));
                        let known = ["WRONGTYPE ", "NOTHELD ", "DEADLOCK "];
                        let is_known = known.iter().any(|code| error.starts_with(code));
                        assert!(is_known, "{}: {error}", command.name);
                        assert_eq!(snapshot(&mut con), before, "{} {count:?}", command.name);
                    }
                    assert_eq!(text(call!(con, "HGET", "k", bad)), count, "{}", command.name);
                }
            }
        }
    }
}

#[test]
fn a_write_count_at_the_limit_counts_down_but_not_up() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let most = i64::MAX.to_string();
    let fields = [("mode", "write"), ("me:write", most.as_str())];
    hash(&mut con, &fields, &[]);
    let inspect = |con: &mut Connection| map(call!(con, "RWLOCK.INSPECT", "k"));
    let picture = assert_unchanged(&mut con, inspect);
    assert_eq!(int(&map(&list(&picture["holders"])[0])["holds"]), i64::MAX);
    refused!(&mut con, "ERR", "RWLOCK.WLOCK", "k", "me", 60_000);
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 60_000, "ONCE"));
    assert_eq!(text(call!(con, "HGET", "k", "me:write")), most);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 0);
    assert_eq!(text(call!(con, "HGET", "k", "me:write")), (i64::MAX - 1).to_string());
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 60_000));
    assert_eq!(text(call!(con, "HGET", "k", "me:write")), most);

    assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000));
    refused!(&mut con, "ERR", "RWLOCK.UPGRADE", "k", "me", 60_000);
    assert_ok(call!(con, "RWLOCK.DOWNGRADE", "k", "me", 60_000));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 1);
    hash(&mut con, &fields, &[]);
    assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "k")), 1);
    assert!(snapshot(&mut con).is_empty());
}

#[test]
fn a_read_count_at_the_limit_is_answered_quickly() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for count in ["9223372036854775807", "4294967296", "1000000000"] {
        for owner in ["me", "other"] {
            hash(&mut con, &[("mode", "read"), (owner, count)], &[owner]);
            let before = snapshot(&mut con);
            let commands = every_command::all().filter(|c| c.name != "RWLOCK.FORCEUNLOCK");
            for command in commands {
                let started = Instant::now();
                if command.call(&mut con, b"k", b"me").is_err() {
                    assert_eq!(snapshot(&mut con), before, "{}", command.name);
                }
                let took = started.elapsed();
                assert!(took < Duration::from_secs(1), "{} took {took:?}", command.name);
            }
            assert_eq!(text(call!(con, "HGET", "k", owner)), count);
            let started = Instant::now();
            assert_eq!(int(call!(con, "RWLOCK.FORCEUNLOCK", "k")), 1);
            assert!(started.elapsed() < Duration::from_secs(1));
            assert_ok(call!(con, "FLUSHALL"));
        }
    }
}

fn main_thread_seconds(server: &Server) -> f64 {
    let info = server.info("cpu");
    let seconds = |field: &str| info[field].parse::<f64>().expect("seconds");
    seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")
}

#[test]
fn many_large_read_counts_are_answered_quickly_too() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let fill = "redis.call('HSET', KEYS[1], 'mode', 'read')
        for i = 1, 2000 do redis.call('HSET', KEYS[1], 'owner' .. i, 65000) end
        return redis.call('PEXPIRE', KEYS[1], 600000)";
    for command in every_command::all() {
        assert_eq!(int(call!(con, "EVAL", fill, 1, "k")), 1);
        let before = main_thread_seconds(&server);
        drop(command.call(&mut con, b"k", b"me"));
        // The server's own time: others use the machine too.
        let took = main_thread_seconds(&server) - before;
        assert!(took < 3.0, "{} {:?} takes {took} s", command.name, command.rest);
    }
}

#[test]
fn a_hash_that_could_be_anything_survives_the_search_for_locks_after_a_start() {
    let mut plain = Server::builder().without_module().aof().start();
    let mut con = plain.connection();
    let hashes: [&[&str]; 4] = [
        &["reading", "mode", "read", "retries", "3"],
        &["writing", "mode", "write", "retries", "3"],
        &["named", "mode", "read", "name", "Ann"],
        &["alone", "mode", "write"],
    ];
    for words in hashes {
        send(&mut con, ["HSET"].iter().chain(words)).expect("a hash");
    }
    call!(con, "PEXPIRE", "reading", 600_000).expect("an expiry");
    let before = snapshot(&mut con);
    // One of its holds has lapsed long since.
    let timeout = "{lock}:you:rwlock_timeout:1";
    at_once(
        &mut con,
        &[
            &["HSET", "lock", "mode", "read", "me", "1", "you", "1"],
            &["PEXPIRE", "lock", "600000"],
            &["SET", timeout, "lock", "PX", "600000"],
        ],
    );
    plain.stop();
    let server = Server::builder().aof().dir(plain.dir()).start();
    let mut con = server.connection();
    wait_until("the search has met the lock", || int(call!(con, "HEXISTS", "lock", "me")) == 0);
    assert_eq!(int(call!(con, "DEL", "lock", timeout)), 2);
    assert_eq!(snapshot(&mut con), before);
}

#[test]
fn a_timeout_key_of_another_type_is_refused_wherever_it_is_met() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for words in &OTHER_TYPES[2..] {
        // The one that the first hold needs, and the ones of later holds.
        for held in 0..3_u32 {
            for _ in 0..held {
                assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 600_000));
            }
            let next = format!("{{k}}:me:rwlock_timeout:{}", held + 1);
            make(&mut con, words, &next);
            refused!(&mut con, "WRONGTYPE", "RWLOCK.RLOCK", "k", "me", 60_000);
            // Above the count it means nothing to anybody else.
            if held > 0 {
                assert_ok(call!(con, "RWLOCK.RLOCK", "k", "me", 60_000, "ONCE"));
                assert_ok(call!(con, "RWLOCK.RENEW", "k", "me", 60_000));
                map(call!(con, "RWLOCK.INSPECT", "k"));
            }
            assert_eq!(int(call!(con, "DEL", &next)), 1);

            for number in 1..=held {
                let below = format!("{{k}}:me:rwlock_timeout:{number}");
                let kept = format!("{below}:kept");
                let mut other = words.to_vec();
                other.insert(1, &below);
                let away = ["RENAME", &below, &kept];
                at_once(&mut con, &[&away, &other, &["PEXPIRE", &below, "600000"]]);
                // A lock in another mode would be none of FORCEUNLOCK's.
                let meet = |command: &&Command| command.rest != ["WRITE"] || command.has_owner;
                all_refused(&mut con, every_command::all().filter(meet));
                assert_ok(call!(con, "RENAME", &kept, &below));
            }
            assert_ok(call!(con, "FLUSHALL"));
        }
    }
    // A downgrade needs the first.
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 600_000));
    make(&mut con, OTHER_TYPES[2], "{k}:me:rwlock_timeout:1");
    refused!(&mut con, "WRONGTYPE", "RWLOCK.DOWNGRADE", "k", "me", 60_000);
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "me")), 1);
}

#[test]
fn a_reservation_key_that_names_no_owner_is_refused() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let long = "x".repeat(1025);
    let contents: [&[&str]; 4] =
        [&["SET", ""], &["SET", "mode"], &["SET", "x:write"], &["SET", &long]];
    for words in OTHER_TYPES[2..].iter().chain(&contents) {
        make(&mut con, words, "{k}:wait_write");
        for held in [false, true] {
            if held {
                hash(&mut con, &[("mode", "read"), ("other", "1")], &["other"]);
            }
            let needs = ["RWLOCK.RLOCK", "RWLOCK.WLOCK", "RWLOCK.INSPECT"];
            let commands = every_command::all().filter(|command| needs.contains(&command.name));
            all_refused(&mut con, commands);
            refused!(&mut con, "WRONGTYPE", "RWLOCK.FORCEUNLOCK", "k");
            if held {
                // Who holds the lock already is not held up by a reservation.
                assert_ok(call!(con, "RWLOCK.RLOCK", "k", "other", 60_000));
                assert_ok(call!(con, "RWLOCK.RENEW", "k", "other", 60_000));
                assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "k", "other", "ALL")), 1);
            }
        }
        assert_ok(call!(con, "FLUSHALL"));
    }
}

#[test]
fn a_fence_key_that_holds_no_token_is_told() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "RWLOCK.WLOCK", "k", "me", 600_000));
    for words in &OTHER_TYPES[2..] {
        make(&mut con, words, "{k}:rwlock_fence");
        refused!(&mut con, "WRONGTYPE", "RWLOCK.INSPECT", "k");
        assert_eq!(int(call!(con, "DEL", "{k}:rwlock_fence")), 1);
    }
    for token in BAD_COUNTS {
        assert_ok(call!(con, "SET", "{k}:rwlock_fence", token));
        let result = assert_unchanged(&mut con, |con| call!(con, "RWLOCK.INSPECT", "k"));
        assert!(result.is_err(), "{token:?} passed for a token");
        assert_error(result, "WRONGTYPE");
    }
    assert_ok(call!(con, "SET", "{k}:rwlock_fence", "1760000000000000"));
    assert_eq!(int(&map(call!(con, "RWLOCK.INSPECT", "k"))["fence"]), 1_760_000_000_000_000);
}
