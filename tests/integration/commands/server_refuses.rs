//! When the server itself refuses: memory, replicas, a replica. What gives back and what looks still works where that can be.

use redis::{Connection, RedisResult, Value};

use support::every_command::{self, Command};
use support::unchanged::assert_unchanged;
use support::{
    assert_error, assert_ok, call, int, list, map, send, text, wait_synced, wait_until, Server,
};

/// How a command reaches the server.
type Road = fn(&mut Connection, Vec<Vec<u8>>) -> RedisResult<Value>;

const ROADS: [Road; 3] = [direct, scripted, in_a_transaction];

fn direct(con: &mut Connection, words: Vec<Vec<u8>>) -> RedisResult<Value> {
    send(con, words)
}

fn scripted(con: &mut Connection, words: Vec<Vec<u8>>) -> RedisResult<Value> {
    let start = [&b"EVAL"[..], b"return redis.call(unpack(ARGV))", b"0"].map(<[u8]>::to_vec);
    send(con, start.into_iter().chain(words))
}

fn in_a_transaction(con: &mut Connection, words: Vec<Vec<u8>>) -> RedisResult<Value> {
    assert_ok(call!(con, "MULTI"));
    if let Err(error) = send(con, words) {
        assert_error(call!(con, "EXEC"), "EXECABORT");
        return Err(error);
    }
    let mut results = list(call!(con, "EXEC")?);
    match results.remove(0) {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// By each road, on locks that make it succeed, this error.
#[track_caller]
fn refused_by_every_road<'a>(
    con: &mut Connection,
    commands: impl Iterator<Item = &'a Command>,
    error: &str,
) {
    for command in commands {
        let lock: &[u8] = if command.name == "RWLOCK.DOWNGRADE" { b"write" } else { b"read" };
        for road in ROADS {
            assert_unchanged(con, |con| {
                assert_error(road(con, command.words(lock, b"me")), error);
            });
        }
    }
}

fn locks(con: &mut Connection) {
    assert_ok(call!(con, "RWLOCK.RLOCK", "read", "me", 600_000));
    assert_ok(call!(con, "RWLOCK.WLOCK", "write", "me", 600_000));
}

#[test]
fn a_full_server_grants_nothing_and_takes_everything_back() {
    let server = Server::builder().config("maxmemory-policy", "noeviction").start();
    let mut con = server.connection();
    // While it is full, a server queues nothing for a transaction.
    for (road, refusing) in [(ROADS[0], ROADS[0]), (ROADS[1], ROADS[1]), (ROADS[0], ROADS[2])] {
        locks(&mut con);
        assert_ok(call!(con, "RWLOCK.RLOCK", "shared", "me", 600_000));
        assert_ok(call!(con, "RWLOCK.RLOCK", "shared", "you", 600_000));
        assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 1));
        let refused = [
            "RWLOCK.RLOCK free me 60000",
            "RWLOCK.RLOCK read me 60000",
            "RWLOCK.RLOCK read me 60000 ONCE",
            "RWLOCK.WLOCK free me 60000",
            "RWLOCK.WLOCK write me 60000 ONCE",
            "RWLOCK.WLOCK read you 60000 RESERVE 60000",
            "RWLOCK.UPGRADE read me 60000",
            "RWLOCK.UPGRADE read me 60000 BLOCK 60000",
            // Who would have to wait is not even put into the queue.
            "RWLOCK.WLOCK read you 60000 BLOCK 60000",
            "RWLOCK.RLOCK write you 60000 BLOCK 60000",
        ];
        for command in refused {
            let result = assert_unchanged(&mut con, |con| refusing(con, words(command)));
            assert!(result.is_err(), "{command}: {result:?}");
            assert_error(result, "OOM");
        }
        assert_ok(road(&mut con, words("RWLOCK.RENEW read me 900000")));
        assert!(int(call!(con, "PTTL", "{read}:me:rwlock_timeout:1")) > 600_000);
        assert_ok(road(&mut con, words("RWLOCK.DOWNGRADE write me 900000")));
        let picture = map(road(&mut con, words("RWLOCK.INSPECT write")));
        assert_eq!(text(&picture["mode"]), "read");
        assert_eq!(int(road(&mut con, words("RWLOCK.UNLOCK write me"))), 1);
        assert_eq!(int(road(&mut con, words("RWLOCK.UNLOCK shared me ALL"))), 0);
        assert_eq!(int(road(&mut con, words("RWLOCK.FORCEUNLOCK shared"))), 1);
        assert_eq!(int(road(&mut con, words("RWLOCK.UNLOCK read me"))), 1);
        assert_eq!(int(call!(con, "DBSIZE")), 0);
        assert_ok(call!(con, "CONFIG", "SET", "maxmemory", 0));
    }
}

#[test]
fn a_replica_looks_and_changes_nothing() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    let (mut con, mut copy) = (primary.connection(), replica.connection());
    locks(&mut con);
    assert_ok(call!(con, "RWLOCK.RLOCK", "read", "you", 600_000));
    int(call!(con, "RWLOCK.WLOCK", "read", "third", 600_000, "RESERVE", 500_000));
    wait_synced(&primary, &replica);
    refused_by_every_road(&mut copy, every_command::WRITING.iter(), "READONLY");

    let picture = assert_unchanged(&mut copy, |copy| map(call!(copy, "RWLOCK.INSPECT", "read")));
    assert_eq!(text(&picture["mode"]), "read");
    assert_eq!(int(&picture["holders_total"]), 2);
    assert_eq!(text(&picture["reserved_by"]), "third");

    // One lapses, and the primary may not write.
    assert_ok(call!(con, "MULTI"));
    for key in ["{read}:me:rwlock_timeout:1", "{read}:wait_write"] {
        assert_eq!(text(call!(con, "PEXPIRE", key, 200)), "QUEUED");
    }
    assert_eq!(text(call!(con, "CLIENT", "PAUSE", 600_000, "WRITE")), "QUEUED");
    list(call!(con, "EXEC"));
    wait_until("the replica knows of the shorter leases", || {
        int(call!(copy, "PTTL", "{read}:wait_write")) <= 200
    });
    let size = int(call!(copy, "DBSIZE"));
    wait_until("the lapsed hold and reservation are not shown", || {
        let picture = map(call!(copy, "RWLOCK.INSPECT", "read"));
        int(&picture["holders_total"]) == 1 && picture["reserved_by"] == Value::Nil
    });
    assert_eq!(text(call!(copy, "HGET", "read", "me")), "1");
    assert_eq!(int(call!(copy, "DBSIZE")), size, "and yet nothing was removed");
    // The primary sees to it when it may.
    assert_ok(call!(con, "CLIENT", "UNPAUSE"));
    wait_until("the hold is gone", || {
        int(call!(copy, "HEXISTS", "read", "me")) == 0 && int(call!(copy, "DBSIZE")) == size - 2
    });
}

#[test]
fn a_primary_without_enough_replicas_refuses_to_write_but_looks() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    assert_ok(call!(con, "CONFIG", "SET", "min-replicas-to-write", 1));
    refused_by_every_road(&mut con, every_command::WRITING.iter(), "NOREPLICAS");
    let picture = map(call!(con, "RWLOCK.INSPECT", "read"));
    assert_eq!(text(&picture["mode"]), "read");
    assert_ok(call!(con, "CONFIG", "SET", "min-replicas-to-write", 0));
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "read", "me")), 1);
}

#[test]
fn a_script_that_may_only_read_may_only_look() {
    let server = Server::builder().start();
    let mut con = server.connection();
    locks(&mut con);
    let script = "return redis.call(unpack(ARGV))";
    for command in &every_command::WRITING {
        let start = ["EVAL_RO", script, "0"].map(|word| word.as_bytes().to_vec());
        let all = start.into_iter().chain(command.words(b"read", b"me"));
        let result = assert_unchanged(&mut con, |con| send(con, all));
        let error = assert_error(result, "ERR");
        assert!(error.contains("read-only scripts"), "{}: {error}", command.name);
    }
    list(call!(con, "EVAL_RO", script, 0, "RWLOCK.INSPECT", "read"));
}

#[test]
fn what_is_refused_propagates_nothing() {
    let server = Server::builder().aof().start();
    let mut con = server.connection();
    locks(&mut con);
    assert_ok(call!(con, "SET", "text", "text"));
    assert_eq!(int(call!(con, "HSET", "hash", "mode", "read", "me", "x")), 2);
    assert_ok(call!(con, "SET", "{clash}:me:rwlock_timeout:1", "{clash}"));
    let written = || server.info("persistence")["aof_current_size"].clone();
    let before = written();
    let refused = [
        "RWLOCK.RLOCK write you 60000",
        "RWLOCK.WLOCK read me 60000",
        "RWLOCK.UPGRADE free me 60000",
        "RWLOCK.UNLOCK read you",
        "RWLOCK.RENEW write you 60000",
        "RWLOCK.DOWNGRADE read me 60000",
        "RWLOCK.FORCEUNLOCK read WRITE",
        "RWLOCK.FORCEUNLOCK free",
        "RWLOCK.WLOCK text me 60000 RESERVE 60000",
        "RWLOCK.RLOCK hash me 60000",
        "RWLOCK.UNLOCK hash me ALL",
        "RWLOCK.FORCEUNLOCK hash",
        "RWLOCK.RLOCK clash me 60000",
        "RWLOCK.RLOCK read mode 60000",
        "RWLOCK.RLOCK read me 0",
        "RWLOCK.INSPECT read",
    ];
    for command in refused {
        for road in ROADS {
            drop(road(&mut con, words(command)));
        }
        assert_eq!(written(), before, "{command}");
    }
    assert_eq!(int(call!(con, "RWLOCK.UNLOCK", "read", "me")), 1);
    assert_ne!(written(), before, "what is not refused does");
}
