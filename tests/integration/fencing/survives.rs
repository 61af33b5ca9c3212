//! Tokens increase whatever becomes of the server.

use crate::fencing::tokens::fenced;
use support::observe::{assert_same_keys, ends_at, inspect, keyspace, run};
use support::wire::{append_only_file, assert_plain};
use support::{assert_ok, call, int, text, wait_synced, wait_until, Cluster, Server};

const KEY: &str = "{k}:rwlock_fence";

/// The last token that a server knows.
#[track_caller]
fn last(server: &Server) -> i64 {
    text(call!(server.connection(), "GET", KEY)).parse().expect("a token")
}

/// A hold with a token, given back at once.
#[track_caller]
fn take_and_give_back(server: &Server) -> i64 {
    let mut con = server.connection();
    let token = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a ALL")), 1);
    token
}

#[test]
fn over_a_kill_and_a_restart_from_the_aof() {
    let mut server = Server::builder().aof().start();
    let mut before = 0;
    for _ in 0..3 {
        let token = fenced(&mut server.connection(), "WLOCK k a 60000 FENCE");
        assert!(token > before);
        let end = ends_at(&mut server.connection(), KEY);
        server.kill9();
        server.restart();
        let mut con = server.connection();
        assert_eq!(last(&server), token);
        assert_eq!(ends_at(&mut con, KEY), end);
        // The hold is there still, the server does not know its token any more.
        before = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(before > token);
        assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), before);
        assert_ok(run(&mut con, "DEBUG LOADAOF"));
        let token = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(token > before);
        before = take_and_give_back(&server);
        assert!(before >= token);
    }
}

#[test]
fn over_a_crash_that_loses_the_last_writes() {
    // Nothing is saved but when the test says so.
    let mut server = Server::builder().start();
    let mut before = take_and_give_back(&server);
    for save in [true, false, true, false] {
        if save {
            server.save();
        }
        let saved = last(&server);
        for _ in 0..100 {
            let token = take_and_give_back(&server);
            assert!(token > before);
            before = token;
        }
        server.kill9();
        server.restart();
        assert!(last(&server) < before, "{} was saved, not {before}", saved);
        let token = take_and_give_back(&server);
        assert!(token > before, "{token} after {before}");
        before = token;
    }
}

#[test]
fn a_file_is_read_by_a_server_without_the_module() {
    let mut server = Server::builder().aof().save_rdb().start();
    let mut con = server.connection();
    for line in ["WLOCK k a 60000 FENCE", "WLOCK {x}y a 60000 FENCE", "WLOCK k a 60000 FENCE ONCE"]
    {
        fenced(&mut con, line);
    }
    let expected = keyspace(&server);
    assert_eq!(expected.len(), 4);
    server.stop();
    assert_plain(&append_only_file(&server));
    let plain = Server::builder().without_module().dir(server.dir());
    for files in [plain.clone().aof(), plain] {
        assert_same_keys("in a file", &expected, &keyspace(&files.start()));
    }
}

#[test]
fn a_replica_without_the_module_has_the_same_key() {
    let primary = Server::builder().start();
    let replica = Server::builder().without_module().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let mut con = primary.connection();
    for line in ["WLOCK k a 60000 FENCE", "WLOCK k a 60000 FENCE", "WLOCK k a 70000 ONCE FENCE"] {
        fenced(&mut con, line);
        wait_synced(&primary, &replica);
        let expected = keyspace(&primary);
        assert_eq!(expected.len(), 2);
        assert_same_keys(line, &expected, &keyspace(&replica));
    }
    take_and_give_back(&primary);
    wait_synced(&primary, &replica);
    assert_same_keys("given back", &keyspace(&primary), &keyspace(&replica));
    assert_eq!(keyspace(&replica).len(), 1);
}

#[test]
fn over_a_failover() {
    let mut primary = Server::builder().start();
    let mut before = 0;
    for _ in 0..3 {
        let replica = Server::builder().replica_of(&primary).start();
        wait_synced(&primary, &replica);
        let mut con = primary.connection();
        let token = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(token > before);
        assert_eq!(int(run(&mut con, "WAIT 1 30000")), 1);
        // A replica shows it, and hands out none.
        assert_eq!(int(inspect(&mut replica.connection(), "k", "fence")), token);
        assert!(run(&mut replica.connection(), "RWLOCK.WLOCK k a 60000 FENCE").is_err());
        primary.kill9();
        assert_ok(run(&mut replica.connection(), "REPLICAOF NO ONE"));
        assert_eq!(last(&replica), token);
        let mut con = replica.connection();
        before = fenced(&mut con, "WLOCK k a 60000 FENCE");
        assert!(before > token);
        assert_eq!(fenced(&mut con, "WLOCK k a 60000 FENCE"), before);
        let token = take_and_give_back(&replica);
        assert_eq!(token, before, "it is the same tenure");
        primary = replica;
    }
}

#[test]
fn over_a_failover_that_loses_the_last_writes() {
    let mut primary = Server::builder().start();
    let mut before = take_and_give_back(&primary);
    for _ in 0..3 {
        let replica = Server::builder().replica_of(&primary).start();
        wait_synced(&primary, &replica);
        // Nothing reaches it any more.
        let mut con = replica.connection();
        assert_ok(run(&mut con, "REPLICAOF 127.0.0.1 1"));
        for _ in 0..100 {
            let token = take_and_give_back(&primary);
            assert!(token > before);
            before = token;
        }
        primary.kill9();
        assert_ok(run(&mut con, "REPLICAOF NO ONE"));
        assert!(last(&replica) < before, "it has heard of the last token");
        let token = take_and_give_back(&replica);
        assert!(token > before, "{token} after {before}");
        before = token;
        primary = replica;
    }
}

#[test]
fn a_primary_that_comes_back_knows_no_tenure() {
    let first = Server::builder().start();
    let second = Server::builder().replica_of(&first).start();
    wait_synced(&first, &second);
    let mut con = first.connection();
    let mut before = fenced(&mut con, "WLOCK k a 600000 FENCE");
    let mut roles = [&first, &second];
    for _ in 0..2 {
        let [old, new] = roles;
        wait_synced(old, new);
        assert_ok(run(&mut old.connection(), "FAILOVER"));
        wait_until("they have changed roles", || {
            new.info("replication")["role"] == "master"
                && old.info("replication")["role"] == "slave"
        });
        // b writes in between and asks for no token.
        let mut con = new.connection();
        assert_eq!(int(run(&mut con, "RWLOCK.FORCEUNLOCK k")), 1);
        for owner in ["b", "a"] {
            assert_ok(run(&mut con, &format!("RWLOCK.WLOCK k {owner} 600000")));
            if owner == "b" {
                assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k b")), 1);
            }
        }
        let token = fenced(&mut con, "WLOCK k a 600000 FENCE");
        assert!(token > before, "{token} after {before}");
        before = token;
        roles = [new, old];
    }
}

#[test]
fn in_a_cluster() {
    let cluster = Cluster::start(1, 1);
    let (primary, replica) = (cluster.node(0), cluster.node(1));
    let mut con = primary.connection();
    let first = fenced(&mut con, "WLOCK k a 60000 FENCE");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK k a")), 1);
    wait_synced(primary, replica);
    assert_ok(run(&mut replica.connection(), "CLUSTER FAILOVER"));
    wait_until("the replica takes over", || {
        replica.info("replication")["role"] == "master"
            && primary.info("replication")["role"] == "slave"
    });
    cluster.wait_ok();
    assert_eq!(last(replica), first);
    assert!(fenced(&mut replica.connection(), "WLOCK k a 60000 FENCE") > first);
}
