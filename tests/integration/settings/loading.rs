//! Loading the module, and taking it out again.

use support::observe::{assert_same_keys, keyspace, run};
use support::{
    assert_error, assert_ok, call, int, library, list, map, text, unload, wait_until, Server,
};

fn modules(server: &Server) -> Vec<String> {
    list(call!(server.connection(), "MODULE", "LIST"))
        .iter()
        .map(|module| text(&map(module)["name"]))
        .filter(|name| name == "rwlock")
        .collect()
}

#[test]
fn unknown_arguments_are_refused_with_a_clear_line() {
    let error = Server::builder()
        .module_arguments("nonsense 7")
        .try_start()
        .expect_err("it must not start");
    let log = error.log();
    let ours: Vec<&str> =
        log.lines().filter(|line| line.contains("rwlock: not loaded: ")).collect();
    assert_eq!(ours.len(), 1, "{error}");
    assert!(ours[0].contains("argument"), "{error}");

    let loaded = Server::builder().start();
    let path = library(&loaded);
    let server = Server::builder().without_module().start();
    let mut con = server.connection();
    assert_error(call!(con, "MODULE", "LOAD", &path, "nonsense"), "ERR");
    assert!(server.log().contains("rwlock: not loaded: "));
    assert!(modules(&server).is_empty());
    assert_error(run(&mut con, "RWLOCK.HELP"), "ERR unknown command");
    // And nothing of the failed attempt is in the way.
    assert_ok(call!(con, "MODULE", "LOAD", &path));
    assert_eq!(modules(&server), ["rwlock"]);
    assert_ok(run(&mut con, "RWLOCK.RLOCK lock a 60000"));
}

#[test]
fn a_load_that_fails_leaves_nothing_behind() {
    let loaded = Server::builder().start();
    let path = library(&loaded);
    // The first command that the module registers, one in between, and the last.
    for taken in ["rwlock.rlock", "rwlock.unlock", "rwlock.help"] {
        let server = Server::builder()
            .without_module()
            .config("rename-command", format!("ECHO {taken}"))
            .start();
        let mut con = server.connection();
        for _ in 0..3 {
            assert_error(call!(con, "MODULE", "LOAD", &path), "ERR");
            // Whatever the module follows would be told to code that is gone.
            drop(server.connection());
            for line in [
                "FLUSHALL",
                "SWAPDB 0 1",
                "CONFIG SET hz 100",
                "REPLICAOF 127.0.0.1 1",
                "REPLICAOF NO ONE",
                "DEBUG RELOAD",
                "SET k v PX 1",
            ] {
                assert_ok(run(&mut con, line));
            }
            wait_until("a tick has removed the key", || int(run(&mut con, "DBSIZE")) == 0);
            assert_ok(run(&mut con, "DEBUG SLEEP 0.05"));
        }
        assert!(modules(&server).is_empty());
        assert!(server.log().contains("rwlock: not loaded: "), "{taken}");
        assert_eq!(text(call!(con, taken.to_uppercase(), "hello")), "hello");
    }
}

#[test]
fn locks_outlive_the_module() {
    let server = Server::builder().start();
    let path = library(&server);
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK write a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read a 60000"));
    assert_ok(run(&mut con, "RWLOCK.RLOCK read a 60000"));
    let before = keyspace(&server);
    for _ in 0..3 {
        unload(&mut con);
        assert!(modules(&server).is_empty());
        assert_error(run(&mut con, "RWLOCK.UNLOCK write a"), "ERR unknown command");
        assert_same_keys("unloaded", &before, &keyspace(&server));
        assert_ok(call!(con, "MODULE", "LOAD", &path));
        assert!(int(run(&mut con, "RWLOCK.WLOCK write b 60000")) > 0);
        assert!(int(run(&mut con, "RWLOCK.WLOCK read b 60000")) > 0);
        assert_same_keys("loaded again", &before, &keyspace(&server));
    }
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK write a")), 1);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK read a")), 0);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK read a")), 1);
    assert_eq!(int(run(&mut con, "DBSIZE")), 0);
}

#[test]
fn a_second_load_is_refused_and_does_no_harm() {
    let server = Server::builder().start();
    let path = library(&server);
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 60000"));
    assert_error(call!(con, "MODULE", "LOAD", &path), "ERR");
    assert_eq!(modules(&server), ["rwlock"]);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
}

#[test]
fn a_module_that_is_loaded_later_finds_the_locks_that_plain_commands_made() {
    let loaded = Server::builder().start();
    let path = library(&loaded);
    let server = Server::builder().without_module().start();
    let mut con = server.connection();
    // As Redisson's scripts write them.
    for line in [
        "HSET lock mode read a 2",
        "PEXPIRE lock 60000",
        "SET {lock}:a:rwlock_timeout:1 1 PX 60000",
        "SET {lock}:a:rwlock_timeout:2 1 PX 60000",
    ] {
        run(&mut con, line).expect(line);
    }
    assert_ok(call!(con, "MODULE", "LOAD", &path));
    assert!(int(run(&mut con, "RWLOCK.WLOCK lock b 60000")) > 0);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 0);
    assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock a")), 1);
    assert_eq!(int(run(&mut con, "DBSIZE")), 0);
}
