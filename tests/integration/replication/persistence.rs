//! Files: what is in them, who can read them, and what a crash leaves.

use redis::Connection;

use support::observe::{
    assert_same_keys, clock, ends_at, inspect, keyspace, run, settled_keyspace, under_load,
    Workload,
};
use support::wire::{append_only_file, assert_plain};
use support::{assert_error, assert_ok, fresh_seed, int, text, wait_until, Server};

#[test]
fn an_aof_and_an_rdb_are_read_by_a_server_without_the_module() {
    let mut server = Server::builder().aof().save_rdb().start();
    let mut con = server.connection();
    let (seed, fresh) = (2, fresh_seed());
    let mut workload = Workload::new(seed);
    workload.steps(&mut con, 2_500);
    workload.complete(&mut con);
    Workload::new(fresh).steps(&mut con, 1_000);
    let expected = settled_keyspace(&server);
    assert!(!expected.is_empty());
    server.stop();

    let commands = append_only_file(&server);
    assert_plain(&commands);
    let count = |name: &str| commands.iter().filter(|words| words[0] == name).count();
    assert_eq!(count("PUBLISH"), 0, "messages are no data");
    for name in ["HSET", "HDEL", "PEXPIREAT", "SET", "DEL"] {
        assert!(count(name) > 10, "{name}");
    }

    let plain = |files: &str| {
        let builder = Server::builder().without_module().dir(server.dir());
        if files == "AOF" { builder.aof() } else { builder }.start()
    };
    for files in ["AOF", "RDB"] {
        let what = format!("the {files} differs, seeds {seed} {fresh}");
        assert_same_keys(&what, &expected, &keyspace(&plain(files)));
    }

    server.restart();
    assert_same_keys("with the module", &expected, &keyspace(&server));
}

#[test]
fn an_aof_that_is_switched_on_or_rewritten_under_load_has_the_same_keys() {
    // Else a write could be put off while the file is being synced, and what the
    // server has not written when it is killed is lost.
    let mut server = Server::builder().config("appendfsync", "always").start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "SELECT 9"));
    assert_ok(run(&mut con, "DEBUG POPULATE 5000 filling 50"));
    assert_ok(run(&mut con, "CONFIG SET rdb-key-save-delay 20"));
    let rewritten = |server: &Server| {
        wait_until("the append-only file is rewritten", || {
            let info = server.info("persistence");
            let is = |field: &str, value: &str| info[field] == value;
            is("aof_rewrite_in_progress", "0")
                && is("aof_rewrite_scheduled", "0")
                && is("aof_last_bgrewrite_status", "ok")
        });
    };
    under_load(&server, |go_on| {
        go_on(200);
        assert_ok(run(&mut con, "CONFIG SET appendonly yes"));
        rewritten(&server);
        go_on(200);
        run(&mut con, "BGREWRITEAOF").expect("rewrite it");
        rewritten(&server);
        go_on(200);
    });
    let expected = settled_keyspace(&server);
    assert!(!expected.is_empty());
    server.kill9();
    let plain = Server::builder().without_module().aof().dir(server.dir()).start();
    assert_same_keys("the AOF differs", &expected, &keyspace(&plain));
}

#[test]
fn leases_go_on_while_a_server_is_down() {
    let mut server = Server::builder().aof().start();
    let mut con = server.connection();
    for line in [
        "WLOCK write a 60000",
        "RLOCK read a 60000",
        "RLOCK read b 90000",
        "WLOCK short a 150",
        "RLOCK mixed a 150",
        "RLOCK mixed b 60000",
    ] {
        assert_ok(run(&mut con, &format!("RWLOCK.{line}")));
    }
    assert!(int(run(&mut con, "RWLOCK.WLOCK read c 60000 RESERVE 60000")) > 0);
    let short_end = ends_at(&mut con, "{mixed}:a:rwlock_timeout:1");
    let keys = [
        "write",
        "read",
        "mixed",
        "{read}:a:rwlock_timeout:1",
        "{read}:b:rwlock_timeout:1",
        "{read}:wait_write",
    ];
    let ends = |con: &mut Connection| keys.map(|key| ends_at(con, key));
    let before = ends(&mut con);
    for _ in 0..2 {
        server.kill9();
        server.restart();
        assert_eq!(ends(&mut server.connection()), before);
    }
    let mut con = server.connection();
    wait_until("the short leases are over", || clock(&mut con) > short_end);
    server.kill9();
    server.restart();
    let mut con = server.connection();
    assert_eq!(ends(&mut con), before);
    assert_ok(run(&mut con, "RWLOCK.WLOCK short b 60000"));
    assert_error(run(&mut con, "RWLOCK.UNLOCK mixed a"), "NOTHELD");
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK mixed b")), 1);
    assert_eq!(int(run(&mut con, "EXISTS mixed")), 0);
    assert_eq!(text(inspect(&mut con, "write", "mode")), "write");
}
