//! Tests of the harness itself: what it promises to all the others.

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use redis::Value;

use support::{
    assert_error, assert_ok, bytes, call, error_text, in_own_process, int, list, map, send, slot,
    text, wait_synced, wait_until, wait_until_within, Builder, Cluster, Engine, Port, Server,
    StartError, DEADLINE,
};

/// What the panic of `fails` says.
fn failure_of(fails: impl FnOnce()) -> String {
    let payload = panic::catch_unwind(AssertUnwindSafe(fails)).expect_err("this must fail");
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => panic!("a panic without a message"),
    }
}

/// Other modules may be part of the server.
fn has_module(server: &Server) -> bool {
    list(call!(server.connection(), "MODULE", "LIST"))
        .iter()
        .any(|module| text(&map(module)["name"]) == "rwlock")
}

#[test]
fn a_server_serves_with_the_module_as_soon_as_it_is_started() {
    let server = Server::builder().start();
    let mut con = server.connection();
    assert_eq!(text(call!(con, "PING")), "PONG");
    assert!(has_module(&server));
    assert_eq!(server.info("server")["process_id"], server.pid().to_string());
    assert!(server.log().contains("Ready to accept connections"));

    let version: Engine = server.version();
    assert!(version.at_least((7, 0), (8, 0)), "{version:?}");
    assert!(!version.at_least((999, 0), (999, 0)), "{version:?}");
}

#[test]
fn a_server_can_be_without_the_module_or_load_another_library() {
    let plain = Server::builder().without_module().start();
    assert!(!has_module(&plain));

    let started = Instant::now();
    let error = Server::builder()
        .module("/no/such/library.so")
        .module_arguments("some arguments")
        .try_start()
        .expect_err("a server without its library must not start");
    assert!(error.log().contains("/no/such/library.so"), "{error}");
    assert!(started.elapsed() < DEADLINE, "an exit is noticed at once");
}

#[test]
fn an_engine_that_is_none_is_named() {
    let error: StartError = Server::builder()
        .engine("/no/such/server")
        .try_start()
        .expect_err("there is nothing to start");
    assert!(error.to_string().contains("/no/such/server"), "{error}");
}

#[test]
fn arguments_and_replies_are_binary_safe() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let key = b"\0\xff\r\n";
    assert_ok(call!(con, "SET", key, b"\xfe", "PX", 60_000));
    assert_eq!(bytes(call!(con, "GET", key)), b"\xfe");
    assert_eq!(int(send(&mut con, [b"EXISTS", &key[..]])), 1);
    assert_eq!(call!(con, "GET", "missing"), Ok(Value::Nil));
}

#[test]
fn errors_are_seen_as_on_the_wire() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let syntax = assert_error(call!(con, "SET", "key", 1, "BLAH"), "ERR syntax error");
    assert_eq!(syntax, "ERR syntax error");
    assert_ok(call!(con, "SET", "key", "text"));
    assert_error(call!(con, "LPUSH", "key", 1), "WRONGTYPE");
    failure_of(|| drop(assert_error(call!(con, "LPUSH", "key", 1), "WRONG")));
    failure_of(|| drop(assert_error(call!(con, "PING"), "ERR")));

    // Any code, and runs of spaces, which the client library splits and joins.
    let odd = call!(con, "EVAL", "return {err='ODD  two spaces '}", 0);
    assert_eq!(odd.as_ref().map_err(error_text), Err("ODD  two spaces ".to_owned()));

    // An error inside an array does not hide the rest of it.
    assert_ok(call!(con, "MULTI"));
    assert_eq!(text(call!(con, "INCR", "key")), "QUEUED");
    assert_eq!(text(call!(con, "GET", "key")), "QUEUED");
    let results = list(call!(con, "EXEC"));
    assert!(matches!(results[0], Value::ServerError(_)), "{results:?}");
    assert_eq!(text(&results[1]), "text");
}

#[test]
fn a_map_reads_the_same_in_both_protocols() {
    let server = Server::builder().config("maxclients", 321).start();
    let flat = call!(server.connection(), "CONFIG", "GET", "maxclients")
        .expect("read a setting over RESP2");
    let real = call!(server.connection_resp3(), "CONFIG", "GET", "maxclients")
        .expect("read a setting over RESP3");
    assert_ne!(flat, real);
    assert_eq!(text(&map(&flat)["maxclients"]), "321");
    assert_eq!(map(flat), map(real));
}

#[test]
fn an_append_only_file_survives_a_kill() {
    let mut server = Server::builder().aof().start();
    let (port, pid) = (server.port(), server.pid());
    assert_ok(call!(server.connection(), "SET", "key", "value"));
    server.kill9();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(text(call!(server.connection(), "GET", "key")), "value");
}

#[test]
fn a_replica_stops_while_it_writes_the_file_of_what_it_received() {
    let primary = Server::builder().config("repl-diskless-sync-delay", 0).start();
    for number in 0..100 {
        assert_ok(call!(primary.connection(), "SET", number, "value"));
    }
    // A second for the file, in which the server may refuse to stop.
    let mut replica = Server::builder().aof().config("rdb-key-save-delay", 10_000).start();
    assert_ok(call!(replica.connection(), "REPLICAOF", "127.0.0.1", primary.port()));
    wait_synced(&primary, &replica);
    replica.stop();
}

#[test]
fn a_server_saves_while_a_child_still_writes_a_file() {
    let server = Server::builder().config("rdb-key-save-delay", 10_000).start();
    for number in 0..20 {
        assert_ok(call!(server.connection(), "SET", number, "value"));
    }
    call!(server.connection(), "BGSAVE").expect("it begins");
    server.save();
}

#[test]
fn a_directory_passes_to_a_server_without_the_module() {
    let mut server = Server::builder().save_rdb().start();
    assert_ok(call!(server.connection(), "SET", "key", "value"));
    server.stop();
    let plain = Server::builder().dir(server.dir()).without_module().start();
    assert_eq!(text(call!(plain.connection(), "GET", "key")), "value");
    assert_eq!(plain.dir(), server.dir());
}

#[test]
fn a_restart_keeps_a_rewritten_configuration() {
    let mut server = Server::builder().start();
    let mut con = server.connection();
    assert_ok(call!(con, "CONFIG", "SET", "maxclients", 123));
    assert_ok(call!(con, "CONFIG", "REWRITE"));
    server.restart();
    let config = map(call!(server.connection(), "CONFIG", "GET", "maxclients"));
    assert_eq!(text(&config["maxclients"]), "123");
}

#[test]
fn a_replica_catches_up() {
    let primary = Server::builder().start();
    let replica = Server::builder().without_module().replica_of(&primary).start();
    let mut con = primary.connection();
    for number in 0..100 {
        assert_ok(call!(con, "SET", "key", number));
        if number % 10 == 0 {
            wait_synced(&primary, &replica);
            assert_eq!(text(call!(replica.connection(), "GET", "key")), number.to_string());
        }
    }
}

#[test]
fn a_stalled_server_goes_on() {
    let server = Server::builder().start();
    let mut con = server.connection();
    server.signal(libc::SIGSTOP);
    con.set_read_timeout(Some(Duration::from_millis(50))).expect("set a time-out");
    let error = call!(con, "PING").expect_err("a stopped server answers nothing");
    assert!(error.is_timeout(), "{error}");
    server.signal(libc::SIGCONT);
    assert_eq!(text(call!(server.connection(), "PING")), "PONG");
}

#[test]
fn a_port_has_one_owner_and_room_for_its_bus() {
    let server = Server::builder().start();
    assert!(Port::range().contains(&server.port()));
    assert!(Port::try_claim(server.port()).is_none());

    let port = Port::claim();
    let number = port.number();
    assert!(Port::try_claim(number).is_none(), "claimed");
    drop(port);
    // Another test may be looking at it just now.
    wait_until("the port is free again", || Port::try_claim(number).is_some());
}

#[test]
fn a_directory_goes_away_unless_the_test_fails() {
    let server = Server::builder().start();
    let dir = server.dir().to_owned();
    drop(server);
    assert!(!dir.exists());

    let mut kept = PathBuf::new();
    failure_of(|| {
        let server = Server::builder().start();
        kept = server.dir().to_owned();
        panic!("the test fails with {}", server.port());
    });
    assert!(kept.exists());
    fs::remove_dir_all(kept).expect("remove the directory");
}

#[test]
fn a_log_that_tells_of_trouble_fails_the_test() {
    let log_panic = |server: &Server| {
        assert_ok(call!(server.connection(), "DEBUG", "LOG", "thread panicked on purpose"));
    };
    let mut kept = PathBuf::new();
    let message = failure_of(|| {
        let server = Server::builder().start();
        kept = server.dir().to_owned();
        log_panic(&server);
    });
    assert!(message.contains("panicked on purpose"), "{message}");
    fs::remove_dir_all(kept).expect("remove the directory");

    log_panic(&Server::builder().tolerate_in_log("on purpose").start());
}

#[test]
fn a_crash_fails_the_test() {
    let mut kept = PathBuf::new();
    let message = failure_of(|| {
        let server = Server::builder().start();
        kept = server.dir().to_owned();
        drop(call!(server.connection(), "DEBUG", "SEGFAULT"));
    });
    assert!(message.contains("BUG REPORT"), "{message}");
    fs::remove_dir_all(kept).expect("remove the directory");
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(|| Server::builder().start())
        .join()
        .expect("start a server in another thread");
    assert_eq!(text(call!(server.connection(), "PING")), "PONG");
}

/// Runs itself in a second process, which starts a server and aborts.
#[cfg(target_os = "linux")]
#[test]
fn a_server_does_not_outlive_the_test_process() {
    use std::env;
    use std::net::{Ipv4Addr, TcpStream};
    use std::process::Stdio;

    const CHILD: &str = "HARNESS_SELF_ABORTS";
    if env::var_os(CHILD).is_some() {
        let server = Server::builder().start();
        println!("{} {}", server.port(), server.dir().display());
        std::process::abort();
    }
    let child = in_own_process(module_path!(), "a_server_does_not_outlive_the_test_process")
        .env(CHILD, "1")
        .stderr(Stdio::null())
        .output()
        .expect("run the test executable");
    let output = String::from_utf8_lossy(&child.stdout);
    let (port, dir) = output
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find_map(|(port, dir)| Some((port.parse::<u16>().ok()?, dir)))
        .unwrap_or_else(|| panic!("no port and directory in {output:?}"));
    wait_until("the server is gone", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    fs::remove_dir_all(dir).expect("remove the directory that nobody was left to remove");
}

#[test]
fn waiting_in_vain_says_for_what() {
    let message = failure_of(|| {
        wait_until_within("the impossible", Duration::from_millis(20), || false);
    });
    assert!(message.contains("the impossible"), "{message}");
}

#[test]
fn a_cluster_serves_every_key_at_its_primary() {
    let cluster = Cluster::start(3, 0);
    assert_eq!(cluster.nodes().len(), 3);
    let mut con = cluster.node(0).connection();
    let keys: [&[u8]; 7] = [b"", b"key", b"{key}", b"a{key}b}", b"{}key", b"{key", b"\xff\0"];
    for key in keys {
        assert_eq!(int(call!(con, "CLUSTER", "KEYSLOT", key)), i64::from(slot(key)));
        let primary = cluster.primary_for(key);
        assert_ok(call!(primary.connection(), "SET", key, 1));
        for other in cluster.nodes().iter().filter(|node| node.port() != primary.port()) {
            let moved = assert_error(call!(other.connection(), "GET", key), "MOVED");
            assert_eq!(moved, format!("MOVED {} 127.0.0.1:{}", slot(key), primary.port()));
        }
    }
}

#[test]
fn a_cluster_fails_over_to_a_replica() {
    let durable = |node: Builder| node.aof();
    let mut cluster = Cluster::start_with(3, 1, durable);
    assert_eq!(cluster.nodes().len(), 6);
    let old = cluster.primary_for(b"key").port();
    assert_ok(call!(cluster.primary_for(b"key").connection(), "SET", "key", "value"));
    let index = (0..3)
        .find(|index| cluster.node(*index).port() == old)
        .expect("one of the first three is the primary");
    wait_synced(cluster.node(index), cluster.node(index + 3));
    cluster.node_mut(index).kill9();
    wait_until("the replica takes over", || {
        let role = list(call!(cluster.node(index + 3).connection(), "ROLE"));
        text(&role[0]) == "master"
    });
    cluster.wait_ok();
    let new = cluster.primary_for(b"key");
    assert_eq!(new.port(), cluster.node(index + 3).port());
    assert_eq!(text(call!(new.connection(), "GET", "key")), "value");
}
