//! After many locks, waits, sessions and disconnects the memory is back.
//! `RWLOCK_MEMORY_OF_EACH=1000000` for a million of each.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use redis::Value;

use support::observe::{info_number, run};
use support::wire::packed_line;
use support::{assert_ok, number_from_environment, wait_until, Server};

/// How many of each there are when nobody says.
const OF_EACH: u64 = 30_000;

/// How many of each come before the memory is measured: the server and the module then have what
/// they keep, such as the entries of the log.
const BEFORE: u64 = 4_000;

/// How many bytes more may be in use afterwards; and a quarter of a byte for each, because tables
/// that were large keep a little.
const MORE: i64 = 64 << 10;

/// How many clients there are at once.
const CLIENTS: u64 = 16;

/// Sends many requests in one write. Each must get this reply.
fn exchange(stream: &mut UnixStream, requests: &[String], reply: &[u8]) {
    for some in requests.chunks(500) {
        let packed: Vec<u8> = some.iter().flat_map(|line| packed_line(line)).collect();
        stream.write_all(&packed).expect("send");
        let mut replies = vec![0; some.len() * reply.len()];
        stream.read_exact(&mut replies).expect("read the replies");
        assert!(replies.chunks(reply.len()).all(|got| got == reply), "{:?}", some[0]);
    }
}

/// Each client has its share of the numbers, and a connection.
fn share_out(socket: &Path, of_each: u64, work: impl Fn(u64, &mut UnixStream, Vec<u64>) + Sync) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let work = &work;
            scope.spawn(move || {
                let mut stream = UnixStream::connect(socket).expect("connect");
                let numbers = (client..of_each).step_by(CLIENTS as usize).collect();
                work(client, &mut stream, numbers);
            });
        }
    });
}

/// Each client holds all its locks at the same time, half for reading and half for writing.
fn locks(socket: &Path, of_each: u64) {
    let hold = |number: u64| if number % 2 == 0 { "WLOCK" } else { "RLOCK" };
    share_out(socket, of_each, |_, stream, numbers| {
        let lines = |line: fn(&str, u64) -> String| -> Vec<String> {
            numbers.iter().map(|number| line(hold(*number), *number)).collect()
        };
        exchange(
            stream,
            &lines(|hold, n| format!("RWLOCK.{hold} lock:{n} me 3600000")),
            b"+OK\r\n",
        );
        exchange(stream, &lines(|_, n| format!("RWLOCK.UNLOCK lock:{n} me")), b":1\r\n");
    });
}

/// Some clients take turns on each of four locks, so that nearly all requests wait.
fn waits(socket: &Path, of_each: u64) {
    share_out(socket, of_each, |client, stream, numbers| {
        let lock = client % 4;
        let turn = [
            packed_line(&format!("RWLOCK.WLOCK wait:{lock} owner:{client} 3600000 BLOCK 0")),
            packed_line(&format!("RWLOCK.UNLOCK wait:{lock} owner:{client}")),
        ];
        for turns in numbers.chunks(500).map(<[u64]>::len) {
            stream.write_all(&turn.concat().repeat(turns)).expect("send");
            let mut replies = vec![0; turns * "+OK\r\n:1\r\n".len()];
            stream.read_exact(&mut replies).expect("read the replies");
            assert!(replies.chunks(9).all(|reply| reply == b"+OK\r\n:1\r\n"));
        }
    });
}

/// A hundred session holds of each client at a time.
fn sessions(socket: &Path, of_each: u64) {
    share_out(socket, of_each, |client, stream, numbers| {
        for some in numbers.chunks(100) {
            let lines = |line: fn(u64, u64) -> String| -> Vec<String> {
                some.iter().map(|number| line(*number, client)).collect()
            };
            let take =
                |n, client| format!("RWLOCK.WLOCK session:{n} owner:{client} 3600000 SESSION");
            exchange(stream, &lines(take), b"+OK\r\n");
            let give = |n, client| format!("RWLOCK.UNLOCK session:{n} owner:{client}");
            exchange(stream, &lines(give), b":1\r\n");
        }
    });
}

/// Each connection closes with a session hold, or while it waits for such a hold.
fn disconnects(socket: &Path, of_each: u64) {
    share_out(socket, of_each, |client, holder, numbers| {
        let held = format!("RWLOCK.WLOCK held:{client} holder 3600000 SESSION");
        exchange(holder, &[held], b"+OK\r\n");
        for number in numbers {
            let mut stream = UnixStream::connect(socket).expect("connect");
            match number % (2 * CLIENTS) < CLIENTS {
                true => {
                    let line = format!("RWLOCK.WLOCK left:{number} owner:{number} 3600000 SESSION");
                    exchange(&mut stream, &[line], b"+OK\r\n");
                }
                false => {
                    let wait = format!(
                        "RWLOCK.RLOCK held:{client} owner:{number} 3600000 SESSION BLOCK 0"
                    );
                    let requests = [packed_line("PING"), packed_line(&wait)].concat();
                    stream.write_all(&requests).expect("send");
                    let mut pong = [0; "+PONG\r\n".len()];
                    stream.read_exact(&mut pong).expect("read the reply");
                }
            }
        }
    });
}

/// What is done, and the function that does so many of it.
type Round = (&'static str, fn(&Path, u64));

/// The memory in use, in bytes, once it no longer changes: the server frees what it kept of
/// clients about once a second.
fn settled_memory(server: &Server) -> i64 {
    let mut con = server.connection();
    let mut before = 0;
    loop {
        wait_until("nothing is left of the clients", || {
            let number = |field| info_number(server, "rwlock", field);
            info_number(server, "clients", "connected_clients") <= 2
                && number("rwlock_held_locks") == 0
                && number("rwlock_waiters") == 0
        });
        assert_eq!(run(&mut con, "DBSIZE"), Ok(Value::Int(0)));
        // Without FLUSHALL the tables of the server's own keys would be as large as it likes.
        assert_ok(run(&mut con, "FLUSHALL"));
        let now = info_number(server, "memory", "used_memory");
        if (now - before).abs() < MORE / 8 {
            return now;
        }
        before = now;
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn after_many_of_each_the_memory_is_back() {
    let of_each = number_from_environment("RWLOCK_MEMORY_OF_EACH").unwrap_or(OF_EACH);
    let server = Server::builder().config("unixsocket", "socket").start();
    let socket = server.dir().join("socket");
    let rounds: [Round; 4] =
        [("locks", locks), ("waits", waits), ("sessions", sessions), ("disconnects", disconnects)];
    for (_, round) in rounds {
        round(&socket, BEFORE);
    }
    let before = settled_memory(&server);
    for (what, round) in rounds {
        round(&socket, of_each);
        let after = settled_memory(&server);
        println!("after {of_each} {what}: {} B more", after - before);
        assert!(
            after - before < MORE + of_each as i64 / 4,
            "after {what}: {before} B before, {after} B after"
        );
    }
}
