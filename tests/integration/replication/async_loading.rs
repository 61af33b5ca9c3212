//! A replica that loads a new copy of the data while it serves the old one
//! (`repl-diskless-load swapdb`).

use std::fs;
use std::process::Command;

use redis::Connection;

use support::observe::{assert_same_keys, info_number, keyspace, run};
use support::{assert_error, assert_ok, call, int, wait_synced, wait_until, Crowd, Server};

/// How many keys are loaded, and how many µs each of them takes.
const KEYS: usize = 1_000;
const DELAY: usize = 10_000;

fn pair() -> (Server, Server) {
    let primary = Server::builder()
        .config("repl-diskless-sync", "yes")
        .config("repl-backlog-size", "16kb")
        .config("rdbcompression", "no")
        .start();
    let replica = Server::builder()
        .config("repl-diskless-load", "swapdb")
        .config("loading-process-events-interval-bytes", 1_024)
        .replica_of(&primary)
        .start();
    wait_synced(&primary, &replica);
    (primary, replica)
}

/// Has the replica lose so much that it needs all data again, and waits until it
/// loads them, slowly.
fn load_again(primary: &Server, replica: &Server) {
    let mut con = primary.connection();
    assert_ok(call!(replica.connection(), "CONFIG", "SET", "key-load-delay", DELAY));
    run(&mut con, "MULTI").expect("begin");
    run(&mut con, "CLIENT KILL TYPE replica").expect("queue");
    call!(con, "SET", "filler", "x".repeat(100_000)).expect("queue");
    run(&mut con, "EXEC").expect("cut the replica off");
    wait_until("it loads", || is_loading(replica));
}

fn is_loading(replica: &Server) -> bool {
    info_number(replica, "persistence", "async_loading") == 1
}

/// Lets the replica load the rest at once, and waits for that.
fn finish_loading(primary: &Server, replica: &Server, con: &mut Connection) {
    assert!(is_loading(replica), "the load is over too early for the test");
    assert_ok(call!(con, "CONFIG", "SET", "key-load-delay", 0));
    wait_until("it has loaded", || !is_loading(replica));
    wait_synced(primary, replica);
}

fn fill(primary: &Server) {
    fill_with(primary, "a value of some length");
}

fn fill_with(primary: &Server, value: &str) {
    let mut con = primary.connection();
    for number in 0..KEYS {
        call!(con, "SET", format!("fill:{number}"), value).expect("fill");
    }
}

/// Ends the processes that a server has started to save or send its data.
fn kill_children(server: &Server) {
    let pid = server.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.expect("the server runs").split_whitespace() {
        let killed = Command::new("kill").args(["-KILL", child]).status().expect("run kill");
        assert!(killed.success(), "the child {child} ended too early for the test");
    }
}

#[test]
fn a_replica_tells_of_locks_while_it_loads_them_anew() {
    let (primary, replica) = pair();
    let (mut there, mut here) = (Crowd::on(&primary), Crowd::on(&replica));
    there.ok("WLOCK held a 600000");
    there.ok("RLOCK read a 600000");
    there.ok("RLOCK read b 600000");
    there.ok("WLOCK gone a 600000");
    fill(&primary);
    wait_synced(&primary, &replica);

    load_again(&primary, &replica);
    there.gives("UNLOCK gone a", 1);
    // The old data.
    assert_eq!(here.holders("held"), "a write");
    assert_eq!(here.holders("read"), "a read, b read");
    assert_eq!(here.holders("gone"), "a write");
    here.nobody_waits();
    assert_error(here.run("WLOCK other a 1000 BLOCK 0"), "READONLY");
    finish_loading(&primary, &replica, &mut here.con);
    assert_eq!(here.holders("gone"), "");
    assert_eq!(here.holders("read"), "a read, b read");
    assert_same_keys("the replica", &keyspace(&primary), &keyspace(&replica));
}

#[test]
fn what_lapses_while_a_replica_loads_is_not_shown() {
    let (primary, replica) = pair();
    let (mut there, mut here) = (Crowd::on(&primary), Crowd::on(&replica));
    there.ok("WLOCK written a 1500");
    there.ok("RLOCK read a 1500");
    there.ok("RLOCK read b 600000");
    fill(&primary);
    wait_synced(&primary, &replica);
    load_again(&primary, &replica);
    // The server itself shows lapsed keys while it loads.
    wait_until("the write hold has lapsed", || here.holders("written").is_empty());
    wait_until("the read hold has lapsed", || here.holders("read") == "b read");
    finish_loading(&primary, &replica, &mut here.con);
}

#[test]
fn leases_end_on_time_after_a_load_and_a_promotion() {
    let (primary, replica) = pair();
    let (mut there, mut here) = (Crowd::on(&primary), Crowd::on(&replica));
    fill(&primary);
    wait_synced(&primary, &replica);
    load_again(&primary, &replica);
    there.ok("WLOCK k a 3000");
    there.ok("RLOCK r a 3000");
    there.ok("RLOCK r b 600000");
    finish_loading(&primary, &replica, &mut here.con);
    here.plain("REPLICAOF NO ONE");
    let mut waiter = here.waits("WLOCK k b 60000 BLOCK 10000");
    waiter.granted();
    wait_until("the lapsed reader has gone", || int(here.plain("HLEN r")) == 2);
}

#[test]
fn a_load_that_fails_leaves_all_as_it_was() {
    let (mut primary, replica) = pair();
    let (mut there, mut here) = (Crowd::on(&primary), Crowd::on(&replica));
    there.ok("WLOCK k a 600000");
    // More than the sockets hold: what is not yet sent is lost.
    fill_with(&primary, &"x".repeat(30_000));
    wait_synced(&primary, &replica);
    load_again(&primary, &replica);
    // Since Redis 8 the child that sends the data goes on without its parent.
    kill_children(&primary);
    primary.kill9();
    assert_ok(call!(here.con, "CONFIG", "SET", "key-load-delay", 0));
    wait_until("it gave up", || !is_loading(&replica));
    assert!(replica.log().contains("synchronization DB from socket"), "it had all");
    assert_eq!(here.holders("k"), "a write");
    here.plain("REPLICAOF NO ONE");
    here.gives("UNLOCK k a", 1);
    here.ok("WLOCK k b 60000");
}
