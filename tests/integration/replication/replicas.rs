//! Replicas: they have the same keys, with the module or without it, whenever
//! they come.

use redis::Value;

use support::observe::{assert_same_keys, clock, info_number, keyspace, run, under_load, Workload};
use support::{
    assert_error, assert_ok, bytes, call, fresh_seed, int, list, map, send, wait_synced,
    wait_until, Server,
};

#[test]
fn a_replica_without_the_module_has_the_same_keys_and_times() {
    let primary = Server::builder().start();
    let replica = Server::builder().without_module().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    for (seed, steps) in [(1, 3_000), (fresh_seed(), 1_000)] {
        let mut workload = Workload::new(seed);
        for part in 0..10 {
            workload.steps(&mut con, steps / 10);
            if (seed, part) == (1, 9) {
                workload.complete(&mut con);
            }
            wait_synced(&primary, &replica);
            let what = format!("the replica differs, seed {seed}");
            assert_same_keys(&what, &keyspace(&primary), &keyspace(&replica));
        }
    }
    assert!(!keyspace(&primary).is_empty());
}

/// Gives a snapshot something to do, so that it takes a while: in a database
/// that nobody compares.
fn slow_down_snapshots(server: &Server) {
    let mut con = server.connection();
    assert_ok(run(&mut con, "SELECT 9"));
    assert_ok(run(&mut con, "DEBUG POPULATE 10000 filling 50"));
    // µs for each key.
    assert_ok(run(&mut con, "CONFIG SET rdb-key-save-delay 30"));
}

#[test]
fn a_replica_that_comes_while_locks_are_taken_and_released_has_the_same_keys() {
    let primary = Server::builder().start();
    slow_down_snapshots(&primary);
    let mut con = primary.connection();
    let full_syncs = || info_number(&primary, "stats", "sync_full");

    assert_ok(run(&mut con, "CONFIG SET repl-diskless-sync yes"));
    let first = under_load(&primary, |go_on| {
        go_on(200);
        let replica = Server::builder().without_module().replica_of(&primary).start();
        wait_synced(&primary, &replica);
        go_on(200);
        replica
    });
    wait_synced(&primary, &first);
    assert_same_keys("a diskless sync", &keyspace(&primary), &keyspace(&first));
    assert_eq!(full_syncs(), 1);
    drop(first);
    // The child that served it may not have been waited for yet.
    wait_until("no snapshot is being taken", || {
        info_number(&primary, "persistence", "rdb_bgsave_in_progress") == 0
    });

    assert_ok(run(&mut con, "CONFIG SET repl-diskless-sync no"));
    let second = under_load(&primary, |go_on| {
        go_on(200);
        // One that the replica cannot use: nobody kept what came after it began.
        run(&mut con, "BGSAVE").expect("start a snapshot");
        go_on(20);
        let replica = Server::builder().replica_of(&primary).start();
        wait_synced(&primary, &replica);
        go_on(200);
        replica
    });
    wait_synced(&primary, &second);
    assert_same_keys("a sync by file", &keyspace(&primary), &keyspace(&second));
    assert_eq!(full_syncs(), 2);
}

#[test]
fn wait_waits_for_the_replica_that_has_the_hold() {
    let primary = Server::builder().aof().start();
    let replica = Server::builder().aof().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    // It would refuse to stop before.
    wait_until("the replica has written its first file", || {
        info_number(&replica, "persistence", "aof_rewrite_in_progress") == 0
    });
    let mut con = primary.connection();
    for line in ["WLOCK lock a 60000", "RENEW lock a 90000", "UNLOCK lock a", "RLOCK lock a 60000"]
    {
        replica.signal(libc::SIGSTOP);
        run(&mut con, &format!("RWLOCK.{line}")).expect(line);
        assert_eq!(int(run(&mut con, "WAIT 1 20")), 0, "{line}: nothing is waited for");
        replica.signal(libc::SIGCONT);
        assert_eq!(int(run(&mut con, "WAIT 1 30000")), 1, "{line}");
        assert_same_keys(line, &keyspace(&primary), &keyspace(&replica));
    }
    // Redis 7.2 brought it.
    if primary.version().at_least((7, 2), (8, 0)) {
        assert_ok(run(&mut con, "RWLOCK.RLOCK lock b 60000"));
        let synced = list(run(&mut con, "WAITAOF 1 1 30000"));
        assert_eq!(synced, [Value::Int(1), Value::Int(1)]);
    }
}

#[test]
fn a_replica_refuses_to_write_and_answers_inspect() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK write a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK write a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read b 60000"));
    int(run(&mut con, "RWLOCK.WLOCK read c 60000 RESERVE 60000"));
    wait_synced(&primary, &replica);

    let before = keyspace(&replica);
    let mut there = replica.connection();
    for line in [
        "RLOCK free a 60000",
        "WLOCK free a 60000 RESERVE 1000",
        "WLOCK write b 60000 RESERVE 60000",
        "UNLOCK write a",
        "UNLOCK free a",
        "RENEW write a 90000",
        "UPGRADE read a 60000",
        "DOWNGRADE write a 60000",
        "FORCEUNLOCK write",
    ] {
        let line = format!("RWLOCK.{line}");
        assert_error(run(&mut there, &line), "READONLY");
        let script = ["EVAL", "return redis.call(unpack(ARGV))", "0"];
        let error = send(&mut there, script.into_iter().chain(line.split(' ')));
        assert_error(error, "READONLY");
    }
    for lock in ["write", "read", "free"] {
        let look = |server: &Server| {
            let mut con = server.connection();
            let seen = map(run(&mut con, &format!("RWLOCK.INSPECT {lock}")));
            let holders: Vec<_> = list(&seen["holders"])
                .into_iter()
                .map(|holder| {
                    let mut holder = map(holder);
                    // Time goes on between two looks.
                    holder.remove("ttl");
                    holder
                })
                .collect();
            (holders, seen["mode"].clone(), seen["reserved_by"].clone())
        };
        assert_eq!(look(&replica), look(&primary), "{lock}");
    }
    assert_same_keys("nothing changed", &before, &keyspace(&replica));
}

#[test]
fn a_replica_shows_no_lapsed_hold_and_leaves_its_removal_to_the_primary() {
    let primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    let mut there = replica.connection();
    // The server's own search shall not do what the module has to.
    assert_ok(run(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock long 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock short 4000"));
    assert_ok(run(&mut con, "RWLOCK.WLOCK gone short 4000"));
    wait_synced(&primary, &replica);
    // A primary that cannot say that they lapse.
    primary.signal(libc::SIGSTOP);
    let keys = int(run(&mut there, "DBSIZE"));
    assert_eq!(keys, 4);
    let lapsed = clock(&mut there) + 4_000;
    wait_until("the leases are over", || clock(&mut there) > lapsed);

    let seen = map(run(&mut there, "RWLOCK.INSPECT lock"));
    let holders: Vec<_> =
        list(&seen["holders"]).into_iter().map(|holder| bytes(&map(holder)["owner"])).collect();
    assert_eq!(holders, [b"long"]);
    assert_eq!(bytes(&map(run(&mut there, "RWLOCK.INSPECT gone"))["mode"]), b"free");
    assert_eq!(int(run(&mut there, "DBSIZE")), keys);
    assert_eq!(int(call!(there, "HEXISTS", "lock", "short")), 1);

    // No command is needed: the primary removes them, and says so.
    primary.signal(libc::SIGCONT);
    wait_until("the removal reaches the replica", || int(run(&mut there, "DBSIZE")) == 2);
    assert_eq!(int(call!(there, "HEXISTS", "lock", "short")), 0);
    assert_error(run(&mut con, "RWLOCK.UNLOCK gone short"), "NOTHELD");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock long")), 1);
    wait_synced(&primary, &replica);
    assert_eq!(int(run(&mut there, "DBSIZE")), 0);
}
