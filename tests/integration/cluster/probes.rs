//! How the module asks the server whether it would serve a lock: no client sees the
//! question, and neither a key nor a setting changes the answer.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use support::observe::{run, Subscriber};
use support::{assert_ok, int, text, Client, Cluster, Server, DEADLINE};

/// A lock is handed over by the timer: the holder lapses.
fn is_handed_over(server: &Server, lock: &str) {
    let mut con = server.connection();
    assert_ok(run(&mut con, &format!("RWLOCK.WLOCK {lock} a 100")));
    Client::sends(server, &format!("WLOCK {lock} b 60000 BLOCK 0")).granted();
    assert_eq!(int(run(&mut con, &format!("RWLOCK.UNLOCK {lock} b"))), 1);
}

#[test]
fn a_key_that_anybody_may_make_stops_no_grant() {
    let server = Server::builder().start();
    let mut con = server.connection();
    for number in [0, 1, 2] {
        run(&mut con, &format!("LPUSH {{lock}}:rwlock_probe:{number} x")).expect("a list");
    }
    is_handed_over(&server, "lock");
}

#[test]
fn commands_with_other_names_stop_no_grant() {
    let renamed = ["SETRANGE", "EXISTS", "SET", "GET", "HSET", "DEL"];
    let server = renamed
        .iter()
        .fold(Server::builder(), |server, command| {
            server.config("rename-command", format!("{command} \"\""))
        })
        .start();
    is_handed_over(&server, "lock");
}

#[test]
fn commands_with_other_names_stop_no_lock_of_a_cluster() {
    let cluster = Cluster::start_with(1, 0, |node| {
        node.config("rename-command", "EXISTS \"\"").config("rename-command", "SETRANGE \"\"")
    });
    is_handed_over(cluster.node(0), "lock");
}

/// What MONITOR tells of the commands until `ECHO done`, without those that only this test
/// sends to see what goes on.
fn monitored(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("set a time-out");
    stream.write_all(b"MONITOR\r\n").expect("ask");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    act();
    assert_eq!(text(run(&mut server.connection(), "ECHO done")), "done");
    lines
        .take_while(|line| !line.contains("\"ECHO\""))
        .filter_map(|line| line.split('"').nth(1).map(str::to_uppercase))
        .filter(|command| command != "CLIENT" && command != "CLUSTER")
        .collect()
}

#[test]
fn nobody_sees_a_cluster_node_ask() {
    let cluster = Cluster::start(1, 0);
    let server = cluster.node(0);
    let mut con = server.connection();
    assert_ok(run(&mut con, "CONFIG SET notify-keyspace-events KEm"));
    // What is created once is there.
    is_handed_over(server, "lock");
    let mut misses = Subscriber::pattern(server, b"__key*__:*");
    assert_ok(run(&mut con, "CONFIG RESETSTAT"));
    let commands = monitored(server, || {
        let mut con = server.connection();
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 100"));
        Client::sends(server, "WLOCK lock b 60000 BLOCK 0").granted();
        assert_ok(run(&mut con, "RWLOCK.RENEW lock b 60000"));
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK lock b")), 1);
    });
    let ours = ["WLOCK", "WLOCK", "RENEW", "UNLOCK"].map(|name| format!("RWLOCK.{name}"));
    assert_eq!(commands, ours);
    let stats = server.info("commandstats");
    let shown: Vec<&str> = ["exists", "setrange", "get", "set"]
        .into_iter()
        .filter(|name| stats.contains_key(&format!("cmdstat_{name}")))
        .collect();
    assert_eq!(shown, [] as [&str; 0]);
    let version = server.version();
    if version.at_least((7, 2), (8, 0)) {
        let ours = ["wlock", "renew", "unlock"].map(|name| format!("cmdstat_rwlock.{name}"));
        let all: Vec<&String> = stats.keys().filter(|name| name.contains("rwlock")).collect();
        assert_eq!(all.len(), ours.len(), "{all:?}");
        for (name, calls) in ours.iter().zip([2, 1, 1]) {
            assert!(stats[name].starts_with(&format!("calls={calls},")), "{name}: {}", stats[name]);
        }
        assert_eq!(server.info("stats")["keyspace_misses"], "0");
    }
    // Of the lock's own keys Redis 7.0 tells misses.
    assert_eq!(int(run(&mut con, "PUBLISH __keyevent@0__:end end")), 1);
    let told: Vec<String> = misses.until("end");
    assert!(told.iter().all(|line| !line.contains("probe")), "{told:?}");
}
