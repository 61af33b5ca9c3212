//! What a server sends to its replicas: effects, as plain commands with
//! absolute times, and nothing for a request that is refused.

use redis::{Connection, Value};

use support::observe::{clock, ends_at, info_number, run};
use support::wire::{assert_plain, ReplicationStream, Words};
use support::{assert_ok, call, int, list, send, text, wait_until, Server};

/// The commands that change data.
fn effects(commands: &[Words]) -> Vec<Vec<&str>> {
    commands
        .iter()
        .map(|words| words.iter().map(String::as_str).collect::<Vec<_>>())
        .filter(|words| !matches!(words[0], "MULTI" | "EXEC" | "PUBLISH"))
        .collect()
}

/// Asserts that the changes reach a replica as one step. What is announced may
/// follow in a step of its own.
#[track_caller]
fn assert_atomic(commands: &[Words]) {
    let changes = steps(commands).into_iter().filter(|step| step.iter().any(|w| w[0] != "PUBLISH"));
    assert!(changes.count() <= 1, "{commands:?}");
}

/// The commands by the steps in which they take effect, without the words that
/// hold a step together.
fn steps(commands: &[Words]) -> Vec<Vec<Vec<&str>>> {
    let mut steps = Vec::new();
    let mut within = false;
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[0] {
            "MULTI" => {
                steps.push(Vec::new());
                within = true;
            }
            "EXEC" => within = false,
            _ if within => steps.last_mut().expect("a step").push(words),
            _ => steps.push(vec![words]),
        }
    }
    steps
}

/// Locks in every state: `free`; `read` by a; `both` a and b; `twice` by a;
/// `write` by a; `writes` twice by a, who also reads; `reserved` by b, free.
fn prepare(con: &mut Connection) {
    for line in [
        "RLOCK read a 60000",
        "RLOCK both a 60000",
        "RLOCK both b 60000",
        "RLOCK twice a 60000",
        "RLOCK twice a 60000",
        "WLOCK write a 60000",
        "WLOCK writes a 60000",
        "WLOCK writes a 60000",
        "RLOCK writes a 60000",
        "WLOCK reserved a 60000",
    ] {
        assert_ok(run(con, &format!("RWLOCK.{line}")));
    }
    int(run(con, "RWLOCK.WLOCK reserved b 60000 RESERVE 60000"));
    int(run(con, "RWLOCK.UNLOCK reserved a"));
}

#[test]
fn every_change_is_sent_as_plain_commands_in_one_step() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    let mut stream = ReplicationStream::attach(&server);
    for line in [
        "RLOCK free a 60000",
        "RLOCK read a 90000",
        "RLOCK read a 99000 ONCE",
        "RLOCK read b 60000",
        "WLOCK read c 60000 RESERVE 60000",
        "RENEW read a 120000",
        "UNLOCK both a",
        "UPGRADE both b 60000",
        "DOWNGRADE both b 60000",
        "UNLOCK both b",
        "UNLOCK twice a ALL",
        "WLOCK write a 60000",
        "WLOCK write a 90000 ONCE",
        "UNLOCK write a",
        "UNLOCK write a",
        "UNLOCK writes a WRITE",
        "UNLOCK writes a WRITE",
        "RENEW writes a 90000",
        "WLOCK reserved b 60000",
        "FORCEUNLOCK reserved",
        "FORCEUNLOCK read READ",
    ] {
        let (reply, sent) =
            stream.during(&mut con, |con| run(con, &format!("RWLOCK.{line}")).expect(line));
        assert!(!effects(&sent).is_empty(), "{line}: {reply:?}");
        assert_plain(&sent);
        assert_atomic(&sent);
    }
}

#[test]
fn the_times_that_are_sent_are_absolute() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut stream = ReplicationStream::attach(&server);
    let before = clock(&mut con);
    let (reply, sent) = stream.during(&mut con, |con| run(con, "RWLOCK.RLOCK lock a 60000"));
    assert_ok(reply);
    let after = clock(&mut con);
    let end = ends_at(&mut con, "lock");
    assert!((before + 60_000..=after + 60_000).contains(&end), "{before} {end} {after}");
    let timeout = "{lock}:a:rwlock_timeout:1";
    assert_eq!(ends_at(&mut con, timeout), end);
    let end = end.to_string();
    let mut sent = effects(&sent);
    sent.sort();
    assert_eq!(
        sent,
        [
            vec!["HSET", "lock", "mode", "read", "a", "1"],
            vec!["PEXPIREAT", "lock", &end],
            vec!["SET", timeout, "lock", "PXAT", &end],
        ]
    );
}

#[test]
fn a_refused_request_sends_nothing_and_counts_as_no_change() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    assert_ok(run(&mut con, "SET string text"));
    assert_eq!(int(run(&mut con, "HSET hash field 1")), 1);
    let mut stream = ReplicationStream::attach(&server);
    for line in [
        "WLOCK read a 60000",
        "WLOCK read b 60000 ONCE",
        "UPGRADE both a 60000",
        "RLOCK write b 60000",
        "WLOCK write b 60000",
        "RLOCK reserved a 60000",
        "WLOCK reserved a 60000",
        "WLOCK reserved a 60000 RESERVE 60000",
        "UNLOCK free a",
        "UNLOCK read b",
        "UNLOCK read a WRITE",
        "UNLOCK write a READ",
        "RENEW read b 90000",
        "RENEW write b 90000",
        "UPGRADE write a 60000",
        "DOWNGRADE read a 60000",
        "FORCEUNLOCK free",
        "FORCEUNLOCK read WRITE",
        "FORCEUNLOCK write READ",
        "RLOCK string a 60000",
        "WLOCK hash a 60000",
        "UNLOCK hash field",
        "FORCEUNLOCK hash",
        "RLOCK free a 0",
        "WLOCK free a 60000 RESERVE 0",
        "RLOCK free mode 60000",
        "RLOCK free a 60000 NONSENSE",
        "RLOCK free:wait_write a 60000",
        "INSPECT read",
        "INSPECT writes COUNT 1",
        "INSPECT reserved",
        "HELP",
    ] {
        let line = format!("RWLOCK.{line}");
        let changes = info_number(&server, "persistence", "rdb_changes_since_last_save");
        let ways: [&[&str]; 2] = [&[], &["EVAL", "return redis.pcall(unpack(ARGV))", "0"]];
        for way in ways {
            let (reply, sent) = stream
                .during(&mut con, |con| send(con, way.iter().copied().chain(line.split(' '))));
            assert!(sent.is_empty(), "{line}: {reply:?}: {sent:?}");
        }
        let now = info_number(&server, "persistence", "rdb_changes_since_last_save");
        // Each of the markers around a part of the stream is one that the
        // server counts.
        assert_eq!(now - changes, markers_count(&server, &mut con) * 4, "{line}");
    }
}

/// How many changes the server sees in one PUBLISH.
fn markers_count(server: &Server, con: &mut Connection) -> i64 {
    let changes = || info_number(server, "persistence", "rdb_changes_since_last_save");
    let before = changes();
    int(run(con, "PUBLISH anything 1"));
    changes() - before
}

#[test]
fn every_change_counts_for_the_save_points() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for line in [
        "RLOCK lock a 60000",
        "RLOCK lock a 70000 ONCE",
        "RENEW lock a 80000",
        "WLOCK lock b 60000 RESERVE 60000",
        "UPGRADE lock a 60000",
        "DOWNGRADE lock a 90000",
        "UNLOCK lock a",
        "WLOCK lock b 60000",
        "UNLOCK lock b",
        "WLOCK lock b 60000",
        "FORCEUNLOCK lock",
    ] {
        let changes = || info_number(&server, "persistence", "rdb_changes_since_last_save");
        let before = changes();
        run(&mut con, &format!("RWLOCK.{line}")).expect(line);
        assert!(changes() > before, "{line}");
    }
}

#[test]
fn inspect_removes_and_sends_nothing_whatever_it_finds() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    let mut stream = ReplicationStream::attach(&server);
    for lock in ["both", "read", "twice", "writes", "reserved", "free"] {
        let fields = call!(con, "HGETALL", lock);
        let keys = int(run(&mut con, "DBSIZE"));
        let ways: [&[&str]; 3] = [
            &[],
            &["EVAL", "return redis.call(unpack(ARGV))", "0"],
            &["EVAL_RO", "return redis.call(unpack(ARGV))", "0"],
        ];
        for way in ways {
            let (reply, sent) = stream.during(&mut con, |con| {
                send(con, way.iter().copied().chain(["RWLOCK.INSPECT", lock]))
            });
            reply.expect("inspect");
            assert!(sent.is_empty(), "{lock}: {sent:?}");
        }
        assert_eq!(call!(con, "HGETALL", lock), fields, "{lock}");
        assert_eq!(int(run(&mut con, "DBSIZE")), keys, "{lock}");
    }
    // Nor when a hold has just lapsed: nothing comes between the commands of a
    // transaction, not even what the module does by itself.
    for (lock, lapsed) in [("both", "{both}:a"), ("read", "{read}:a"), ("twice", "{twice}:a")] {
        let timeout = format!("{lapsed}:rwlock_timeout:1");
        let (hgetall, inspect) = (format!("HGETALL {lock}"), format!("RWLOCK.INSPECT {lock}"));
        let (replies, sent) =
            stream.during(&mut con, |con| lapse(con, &timeout, &[&hgetall, &inspect, &hgetall]));
        assert_eq!(int(&replies[0]), 1, "{lock}");
        assert_eq!(replies[1], replies[3], "{lock}");
        // What the module does about it comes as a step of its own.
        assert_eq!(steps(&sent)[0], [["DEL", &timeout]], "{lock}: {sent:?}");
    }
}

/// Has timeout keys deleted, as lapses do. Commands may follow in the same
/// step, before the module notices.
fn lapse(con: &mut Connection, timeouts: &str, then: &[&str]) -> Vec<Value> {
    assert_ok(run(con, "MULTI"));
    for line in [format!("DEL {timeouts}").as_str()].iter().chain(then) {
        assert_eq!(text(run(con, line)), "QUEUED");
    }
    list(run(con, "EXEC"))
}

#[test]
fn lapsed_holds_are_sent_away_in_one_step() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    let mut stream = ReplicationStream::attach(&server);

    // The first of two holds: the second moves down.
    let end = ends_at(&mut con, "{twice}:a:rwlock_timeout:2").to_string();
    let (_, sent) = stream.during(&mut con, |con| {
        lapse(con, "{twice}:a:rwlock_timeout:1", &[]);
        wait_until("the module removes the hold", || text(run(con, "HGET twice a")) == "1");
    });
    assert_plain(&sent);
    let [by_client, by_module] = &mut steps(&sent)[..] else { panic!("not two steps: {sent:?}") };
    assert_eq!(*by_client, [["DEL", "{twice}:a:rwlock_timeout:1"]]);
    by_module.sort();
    assert_eq!(
        *by_module,
        [
            vec!["DEL", "{twice}:a:rwlock_timeout:2"],
            vec!["HSET", "twice", "a", "1"],
            vec!["SET", "{twice}:a:rwlock_timeout:1", "twice", "PXAT", &end],
        ]
    );

    // The only hold: the lock is deleted and announced.
    let (_, sent) = stream.during(&mut con, |con| {
        lapse(con, "{read}:a:rwlock_timeout:1", &[]);
        wait_until("the module removes the lock", || int(run(con, "EXISTS read")) == 0);
    });
    assert_eq!(
        steps(&sent),
        [
            [["DEL", "{read}:a:rwlock_timeout:1"].as_slice()],
            [["DEL", "read"].as_slice()],
            [["PUBLISH", "redisson_rwlock:{read}", "0"].as_slice()],
        ]
    );
}

#[test]
fn lapsed_holds_are_sent_away_by_the_command_that_meets_them() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    let mut stream = ReplicationStream::attach(&server);

    let end = ends_at(&mut con, "{twice}:a:rwlock_timeout:2").to_string();
    let (replies, sent) = stream.during(&mut con, |con| {
        lapse(con, "{twice}:a:rwlock_timeout:1", &["RWLOCK.WLOCK twice b 60000"])
    });
    assert!(int(&replies[1]) > 0);
    assert_plain(&sent);
    assert_atomic(&sent);
    let mut sent = effects(&sent);
    sent.sort();
    assert_eq!(
        sent,
        [
            vec!["DEL", "{twice}:a:rwlock_timeout:1"],
            vec!["DEL", "{twice}:a:rwlock_timeout:2"],
            vec!["HSET", "twice", "a", "1"],
            vec!["SET", "{twice}:a:rwlock_timeout:1", "twice", "PXAT", &end],
        ]
    );

    // An error, and yet the lock is deleted and announced.
    let (replies, sent) = stream
        .during(&mut con, |con| lapse(con, "{read}:a:rwlock_timeout:1", &["RWLOCK.UNLOCK read a"]));
    assert!(matches!(&replies[1], Value::ServerError(error) if error.code() == "NOTHELD"));
    assert_atomic(&sent);
    assert_eq!(
        steps(&sent),
        [
            vec![vec!["DEL", "{read}:a:rwlock_timeout:1"], vec!["DEL", "read"]],
            vec![vec!["PUBLISH", "redisson_rwlock:{read}", "0"]],
        ]
    );
}

#[test]
fn effects_inside_transactions_and_scripts_are_sent_as_effects() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut stream = ReplicationStream::attach(&server);
    let (_, sent) = stream.during(&mut con, |con| {
        assert_ok(run(con, "MULTI"));
        for line in ["SET key value", "RWLOCK.RLOCK lock a 60000", "RWLOCK.UNLOCK lock b"] {
            assert_eq!(text(run(con, line)), "QUEUED");
        }
        list(run(con, "EXEC"))
    });
    assert_plain(&sent);
    assert_atomic(&sent);
    assert_eq!(effects(&sent).len(), 4, "{sent:?}");

    let script = "redis.call('RWLOCK.UNLOCK', KEYS[1], 'a') \
                  return redis.call('RWLOCK.WLOCK', KEYS[1], 'b', 60000)";
    let (reply, sent) = stream.during(&mut con, |con| call!(con, "EVAL", script, 1, "lock"));
    assert_ok(reply);
    assert_plain(&sent);
    assert_atomic(&sent);
    let names: Vec<&str> = sent.iter().map(|words| &words[0][..]).collect();
    assert_eq!(names, ["MULTI", "DEL", "HSET", "PEXPIREAT", "EXEC", "PUBLISH"]);
}

#[test]
fn what_is_announced_as_a_pause_begins_is_sent_after_it() {
    let server = Server::builder().start();
    let mut con = server.connection();
    prepare(&mut con);
    let mut stream = ReplicationStream::attach(&server);
    run(&mut con, "RWLOCK.UNLOCK read a").expect("the first with a replica");
    let (_, sent) = stream.during(&mut con, |con| {
        let mut both = redis::pipe();
        both.cmd("RWLOCK.UNLOCK").arg("write").arg("a");
        both.cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE");
        let replies: (i64, String) = both.query(con).expect("two replies");
        assert_eq!(replies, (1, "OK".to_owned()));
        assert_ok(run(con, "CLIENT UNPAUSE"));
    });
    assert_eq!(
        steps(&sent),
        [[["DEL", "write"].as_slice()], [["PUBLISH", "redisson_rwlock:{write}", "1"].as_slice()],]
    );
}
