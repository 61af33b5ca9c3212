//! A replica becomes the primary.

use redis::Connection;

use support::observe::{assert_same_keys, clock, ends_at, inspect, keyspace, run};
use support::{
    assert_error, assert_ok, call, int, list, map, text, wait_synced, wait_until, Cluster, Server,
};

/// `write` is held twice by a, `read` by a and b; b has reserved `read`'s
/// neighbour `next`, which c holds.
fn take_holds(con: &mut Connection, tag: &str) {
    for line in [
        "WLOCK {}write a 60000",
        "WLOCK {}write a 60000",
        "RLOCK {}read a 60000",
        "RLOCK {}read b 60000",
        "WLOCK {}next c 60000",
    ] {
        assert_ok(run(con, &format!("RWLOCK.{}", line.replace("{}", tag))));
    }
    assert!(int(run(con, &format!("RWLOCK.WLOCK {tag}next b 60000 RESERVE 60000"))) > 0);
}

/// The holders go on, the others stay out, and in the end nothing is left.
fn go_on_with_holds(con: &mut Connection, tag: &str) {
    let mut call = |line: &str| run(con, &format!("RWLOCK.{}", line.replace("{}", tag)));
    assert!(int(call("WLOCK {}write b 60000")) > 50_000);
    assert!(int(call("RLOCK {}write b 60000")) > 50_000);
    assert!(int(call("WLOCK {}read c 60000")) > 50_000);
    assert_error(call("UNLOCK {}write b"), "NOTHELD");
    assert_ok(call("RENEW {}write a 90000"));
    assert_ok(call("RENEW {}read b 90000"));
    assert_eq!(int(call("UNLOCK {}write a")), 0);
    assert_eq!(int(call("UNLOCK {}write a")), 1);
    assert_eq!(int(call("UNLOCK {}read a")), 0);
    assert_eq!(int(call("UNLOCK {}read b")), 1);
    assert_eq!(int(call("UNLOCK {}next c")), 1);
    assert!(int(call("WLOCK {}next d 60000")) > 50_000, "it is reserved");
    assert_ok(call("WLOCK {}next b 60000"));
    assert_eq!(int(call("UNLOCK {}next b")), 1);
    assert_eq!(int(run(con, "DBSIZE")), 0);
}

#[test]
fn a_promoted_replica_goes_on_with_the_holds() {
    let mut primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    take_holds(&mut primary.connection(), "");
    wait_synced(&primary, &replica);
    let before = keyspace(&primary);
    primary.kill9();

    let mut con = replica.connection();
    assert_error(run(&mut con, "RWLOCK.UNLOCK write a"), "READONLY");
    assert_ok(run(&mut con, "REPLICAOF NO ONE"));
    assert_same_keys("promotion changes nothing", &before, &keyspace(&replica));
    go_on_with_holds(&mut con, "");
}

#[test]
fn a_promoted_replica_ends_leases_on_time() {
    let mut primary = Server::builder().start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK write a 500"));
    let end = ends_at(&mut con, "write");
    assert_ok(run(&mut con, "RWLOCK.RLOCK read a 500"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read b 60000"));
    wait_synced(&primary, &replica);
    primary.kill9();

    let mut con = replica.connection();
    assert_ok(run(&mut con, "REPLICAOF NO ONE"));
    let mut refused_until = 0;
    wait_until("the lease of the write hold is over", || {
        let before = clock(&mut con);
        let granted = run(&mut con, "RWLOCK.WLOCK write b 60000") == Ok(redis::Value::Okay);
        if !granted {
            refused_until = before;
        }
        granted
    });
    assert!(refused_until <= end, "refused at {refused_until}, after {end}");
    // Not before its last ms: from 7.4 on, Redis removes a key in the very ms of
    // its expiry, and not after it, when it clears away what has expired.
    let after = clock(&mut con);
    assert!(after >= end, "granted to b at {after}, before the end of a's lease at {end}");
    // Both had a lease of 500 ms; that of the read hold began a little later.
    wait_until("the lease of the read hold is over", || {
        list(inspect(&mut con, "read", "holders")).len() == 1
    });
    assert_error(run(&mut con, "RWLOCK.UNLOCK read a"), "NOTHELD");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK read b")), 1);
    assert_eq!(int(run(&mut con, "DBSIZE")), 1);
}

#[test]
fn a_primary_that_became_a_replica_refuses_and_follows() {
    let first = Server::builder().start();
    let second = Server::builder().replica_of(&first).start();
    take_holds(&mut first.connection(), "");
    wait_synced(&first, &second);

    // The orderly way round, with both alive.
    assert_ok(run(&mut first.connection(), "FAILOVER"));
    wait_until("they have changed roles", || {
        second.info("replication")["role"] == "master"
            && first.info("replication")["role"] == "slave"
    });
    wait_synced(&second, &first);
    let mut old = first.connection();
    assert_error(run(&mut old, "RWLOCK.UNLOCK write a"), "READONLY");
    assert_eq!(text(inspect(&mut old, "write", "mode")), "write");
    assert_same_keys("both", &keyspace(&second), &keyspace(&first));
    go_on_with_holds(&mut second.connection(), "");
    wait_synced(&second, &first);
    assert_eq!(int(run(&mut old, "DBSIZE")), 0);
}

#[test]
fn a_cluster_replica_takes_over_with_the_holds() {
    let cluster = Cluster::start(1, 1);
    let (primary, replica) = (cluster.node(0), cluster.node(1));
    take_holds(&mut primary.connection(), "{tag}");
    wait_synced(primary, replica);

    // A replica answers INSPECT to those who want to read there, and redirects
    // whatever else.
    let mut con = replica.connection();
    assert_error(run(&mut con, "RWLOCK.INSPECT {tag}write"), "MOVED");
    assert_ok(run(&mut con, "READONLY"));
    let seen = map(run(&mut con, "RWLOCK.INSPECT {tag}read"));
    assert_eq!(int(&seen["holders_total"]), 2);
    let script = "return redis.call('RWLOCK.INSPECT', KEYS[1])";
    list(call!(con, "EVAL_RO", script, 1, "{tag}read"));
    assert_error(run(&mut con, "RWLOCK.UNLOCK {tag}write a"), "MOVED");

    assert_ok(run(&mut replica.connection(), "CLUSTER FAILOVER"));
    wait_until("the replica takes over", || {
        replica.info("replication")["role"] == "master"
            && primary.info("replication")["role"] == "slave"
    });
    cluster.wait_ok();
    assert_error(run(&mut primary.connection(), "RWLOCK.UNLOCK {tag}write a"), "MOVED");
    go_on_with_holds(&mut replica.connection(), "{tag}");
}
