//! Every way in which a connection can end gives its session holds back.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use redis::{cmd, Connection};

use crate::sessions::{close, ok, HOUR};
use support::observe::{ends_at, run};
use support::{
    assert_error, assert_ok, assert_prompt, call, in_own_process, int, is_blocked, local_clock,
    wait_until, Client, Server,
};

/// The environment variable that makes a process of this test program a client
/// that holds locks: the port of the server.
const HOLDER: &str = "RWLOCK_TEST_HOLDER_PORT";

/// Not a test by itself: what the process that is killed runs.
#[test]
fn a_process_that_is_told_to_hold_does_nothing_else() {
    let Ok(port) = env::var(HOLDER) else {
        return;
    };
    let port: u16 = port.parse().expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream
        .write_all(
            b"RWLOCK.WLOCK write a 60000 SESSION\r\n\
              RWLOCK.RLOCK read a 60000 SESSION\r\nRWLOCK.RLOCK read a 60000 SESSION\r\n",
        )
        .expect("take the locks");
    // Until it is killed, or the server goes.
    let mut replies = Vec::new();
    drop(stream.read_to_end(&mut replies));
}

/// A client in a process of its own.
struct Holder(Child);

impl Holder {
    fn start(server: &Server) -> Self {
        let test = "a_process_that_is_told_to_hold_does_nothing_else";
        let child = in_own_process(module_path!(), test)
            .env(HOLDER, server.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start a client process");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_client_process_is_killed_and_the_next_has_its_locks_within_20_ms() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let mut late = Vec::new();
    for _ in 0..9 {
        let mut holder = Holder::start(&server);
        wait_until("the process holds all", || int(run(&mut con, "DBSIZE")) == 4);
        let mut writer = Client::waits(&server, "WLOCK read b 60000 BLOCK 0");
        let mut reader = Client::waits(&server, "RLOCK write b 60000 BLOCK 0");
        let killed = local_clock();
        holder.0.kill().expect("SIGKILL");
        writer.granted();
        reader.granted();
        late.push(local_clock() - killed);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK read b")), 1);
        assert_eq!(int(run(&mut con, "RWLOCK.UNLOCK write b")), 1);
        assert_eq!(int(run(&mut con, "DBSIZE")), 0);
    }
    assert_prompt("the locks of a killed process", 20, &late);
}

/// Takes holds of every kind over a new connection; how many keys they are.
fn hold(server: &Server) -> (Connection, i64) {
    let mut con = server.connection();
    for line in [
        "WLOCK write a 60000 SESSION",
        "WLOCK write a 60000 SESSION",
        "RLOCK write a 60000 SESSION",
        "RLOCK read a 60000 SESSION",
        "RLOCK read b 60000 SESSION",
        "RLOCK up a 60000 SESSION",
        "UPGRADE up a 60000 SESSION",
    ] {
        assert_ok(run(&mut con, &format!("RWLOCK.{line}")));
    }
    (con, 3 + 1 + 2 + 1)
}

fn send(con: &mut Connection, line: &str) {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().expect("a command"));
    command.arg(words.collect::<Vec<_>>());
    con.send_packed_command(&command.get_packed_command()).expect("send");
}

/// Ends the connection; what it takes to do so, the client's end included.
type End = fn(&Server, Connection) -> Option<Connection>;

const ENDS: [(&str, End); 11] = [
    ("the client goes", |_, _| None),
    ("the client says QUIT", |_, mut con| {
        assert_ok(call!(con, "QUIT"));
        Some(con)
    }),
    ("the client closes in a transaction", |_, mut con| {
        assert_ok(call!(con, "MULTI"));
        None
    }),
    ("the client goes while it waits", |server, mut con| {
        assert_ok(run(&mut server.connection(), "RWLOCK.WLOCK other x 2000"));
        let id = int(call!(con, "CLIENT", "ID"));
        send(&mut con, "RWLOCK.WLOCK other a 60000 BLOCK 0 SESSION");
        wait_until("it waits", || is_blocked(&mut server.connection(), id));
        None
    }),
    ("CLIENT KILL ID", |server, mut con| {
        let id = int(call!(con, "CLIENT", "ID"));
        assert_eq!(int(call!(server.connection(), "CLIENT", "KILL", "ID", id)), 1);
        Some(con)
    }),
    ("it kills itself", |_, mut con| {
        let id = int(call!(con, "CLIENT", "ID"));
        send(&mut con, &format!("CLIENT KILL SKIPME no ID {id}"));
        Some(con)
    }),
    ("its user is deleted", |server, mut con| {
        let mut admin = server.connection();
        assert_ok(call!(admin, "ACL", "SETUSER", "x", "on", "nopass", "~*", "+@all"));
        assert_ok(call!(con, "AUTH", "x", "any"));
        assert_eq!(int(call!(admin, "ACL", "DELUSER", "x")), 1);
        Some(con)
    }),
    ("a protocol error", |_, mut con| {
        con.send_packed_command(b"*1\r\n$-7\r\n").expect("send");
        Some(con)
    }),
    ("it does not read its replies", |server, mut con| {
        let limit = "normal 100000 0 0";
        let mut admin = server.connection();
        assert_ok(call!(admin, "CONFIG", "SET", "client-output-buffer-limit", limit));
        assert_ok(call!(admin, "SETRANGE", "big", 9_999_999, "x").map(|_| redis::Value::Okay));
        for _ in 0..3 {
            send(&mut con, "GET big");
        }
        wait_until("it is closed", || server.log().contains("overcoming of output buffer limits"));
        assert_eq!(int(call!(admin, "DEL", "big")), 1);
        Some(con)
    }),
    ("it does not read its messages", |server, mut con| {
        let limit = "pubsub 100000 0 0";
        let mut admin = server.connection();
        assert_ok(call!(admin, "CONFIG", "SET", "client-output-buffer-limit", limit));
        send(&mut con, "SUBSCRIBE channel");
        con.recv_response().expect("it listens");
        let big = "x".repeat(10_000_000);
        wait_until("nobody listens any more", || {
            int(call!(admin, "PUBLISH", "channel", &big)) == 0
        });
        Some(con)
    }),
    ("it was idle for too long", |server, con| {
        assert_ok(call!(server.connection(), "CONFIG", "SET", "timeout", 1));
        Some(con)
    }),
];

#[test]
fn session_holds_are_given_back_however_a_connection_ends() {
    thread::scope(|scope| {
        for (what, end) in ENDS {
            scope.spawn(move || {
                let server = Server::builder().start();
                let (con, keys) = hold(&server);
                let mut watch = server.connection();
                assert_eq!(int(run(&mut watch, "DBSIZE")), keys, "{what}");
                let mut waiters = ["write", "read", "up"].map(|lock| {
                    Client::waits(&server, &format!("WLOCK {lock} next 60000 BLOCK 0"))
                });
                let con = end(&server, con);
                for waiter in &mut waiters {
                    waiter.granted();
                }
                // Also where the idle are closed.
                let mut watch = server.connection();
                for lock in ["write", "read", "up"] {
                    assert_eq!(
                        int(run(&mut watch, &format!("RWLOCK.UNLOCK {lock} next"))),
                        1,
                        "{what}"
                    );
                }
                wait_until(what, || int(run(&mut watch, "DBSIZE")) == 0);
                drop(con);
            });
        }
    });
}

#[test]
fn a_killed_server_leaves_session_holds_to_their_lease() {
    for restarted_after in [0, 1_200] {
        let mut server = Server::builder().aof().start();
        let mut con = server.connection();
        assert_ok(run(&mut con, "RWLOCK.WLOCK lock a 1000 SESSION"));
        assert_ok(run(&mut con, "RWLOCK.RLOCK read a 1000 SESSION"));
        // Renewed at least once.
        let first = ends_at(&mut con, "lock");
        wait_until("it is renewed", || ends_at(&mut con, "lock") > first);
        server.kill9();
        let killed = local_clock();
        thread::sleep(Duration::from_millis(restarted_after));
        server.restart();
        let loaded = local_clock();
        let mut con = server.connection();
        assert!(ends_at(&mut con, "lock") <= killed + 1_000);
        // Nobody touches `read`.
        let mut waiter = Client::sends(&server, "WLOCK lock b 60000 BLOCK 0");
        waiter.granted();
        let granted = local_clock();
        // The rest is for the machine, which may be busy.
        let limit = loaded.max(killed + 1_000) + 700;
        assert!(granted <= limit, "{} ms after the kill", granted - killed);
        wait_until("the other is free as well", || int(run(&mut con, "DBSIZE")) == 1);
        assert!(local_clock() <= limit + 200);
        if restarted_after == 0 && loaded < killed + 500 {
            assert!(granted > killed + 300, "{} ms after the kill", granted - killed);
        }
    }
}

/// Its holds go together: no waiter is granted anything by one that is about to go.
#[test]
fn an_upgrade_is_not_granted_by_a_read_hold_that_goes_as_well() {
    let server = Server::builder().start();
    for _ in 0..20 {
        let mut watch = server.connection();
        let mut con = server.connection();
        for owner in ["f", "a"] {
            ok(&mut con, &format!("RLOCK k {owner} {HOUR} SESSION"));
        }
        let mut waiter = Client::waits(&server, &format!("UPGRADE k a {HOUR} BLOCK 0"));
        close(con, &mut watch);
        assert_error(waiter.reply(), "NOTHELD");
        assert_eq!(int(run(&mut watch, "DBSIZE")), 0);
    }
}
