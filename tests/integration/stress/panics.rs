//! A panic inside the module: the client is told, and everybody else goes on.
//!
//! Each test does the same again and again, and has the module panic at its first call of
//! the module API, at its second, and so on, until there is no such call any more.

use redis::{Connection, RedisResult, Value};

use support::observe::{inspect, run};
use support::{
    arm, assert_ok, call, disarm, error_text, int, text, unload, wait_until, Client, Server,
};

use crate::sessions::{close, ok, HOUR};

/// No round makes more calls.
const MOST_CALLS: usize = 1_000;

/// A server whose module panics on demand.
struct Rounds {
    server: Server,
    con: Connection,
    panics: i64,
}

impl Rounds {
    fn new() -> Self {
        let server = Server::builder().injector().start();
        let con = server.connection();
        Self { server, con, panics: 0 }
    }

    /// Calls `round` with the number of calls that succeed before one panics, until none
    /// panics. All that a round waits for comes, in spite of the panic; afterwards no lock is
    /// held and nobody waits, and the module can be unloaded.
    #[track_caller]
    fn play(mut self, mut round: impl FnMut(&Server, &mut Connection, usize)) {
        let mut quiet = 0;
        for calls in 0..MOST_CALLS {
            round(&self.server, &mut self.con, calls);
            let panics = disarm(&mut self.con);
            // The server's own work may have made the last call of a round.
            quiet = if panics == self.panics { quiet + 1 } else { 0 };
            self.panics = panics;
            self.goes_on(calls);
            if quiet == 3 {
                assert!(panics > 0, "no call of the round panicked");
                return self.unloads();
            }
        }
        panic!("more than {MOST_CALLS} calls in a round");
    }

    /// The lock, and another one, can be taken and waited for.
    #[track_caller]
    fn goes_on(&mut self, calls: usize) {
        let Self { server, con, .. } = self;
        // What a client was told of as an error may have been granted all the same.
        let forced = run(con, "RWLOCK.FORCEUNLOCK lock");
        assert_eq!(int(inspect(con, "lock", "waiters_total")), 0, "after {calls} calls");
        for lock in ["lock", "other"] {
            let taken = run(con, &format!("RWLOCK.WLOCK {lock} next {HOUR}"));
            if taken != Ok(Value::Okay) {
                let state = run(con, &format!("RWLOCK.INSPECT {lock}"));
                panic!("{lock} after {calls} calls: {taken:?}, {forced:?}, {state:?}");
            }
            let mut waiter = Client::waits(server, &format!("RLOCK {lock} last {HOUR} BLOCK 0"));
            assert_eq!(int(run(con, &format!("RWLOCK.UNLOCK {lock} next"))), 1);
            waiter.granted();
            assert_eq!(int(run(con, &format!("RWLOCK.UNLOCK {lock} last"))), 1);
        }
        assert_eq!(server.info("rwlock")["rwlock_waiters"], "0", "after {calls} calls");
        assert_eq!(int(call!(con, "EXISTS", "lock", "other")), 0, "after {calls} calls");
        // What else there may be is of no lock: a fence key, a timeout key without its hash.
        assert_ok(call!(con, "FLUSHALL"));
    }

    #[track_caller]
    fn unloads(mut self) {
        unload(&mut self.con);
    }
}

/// Sends commands in one packet after [`arm`]; their replies, also of those that fail.
#[track_caller]
fn armed(con: &mut Connection, calls: usize, lines: &[&str]) -> Vec<RedisResult<Value>> {
    let mut packet = arm(calls).get_packed_command();
    for line in lines {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        packet.extend(command.arg(words.collect::<Vec<_>>()).get_packed_command());
    }
    con.send_packed_command(&packet).expect("send the commands");
    let mut reply = || match con.recv_response() {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    };
    reply().expect("it is armed");
    lines.iter().map(|_| reply()).collect()
}

/// A reply; None: the error of a panic, or the end of the connection.
#[track_caller]
fn told(reply: RedisResult<Value>) -> Option<Value> {
    match reply {
        Ok(value) => Some(value),
        Err(error) if error.is_timeout() => panic!("no reply"),
        // What is sent of a reply of several parts cannot be taken back.
        Err(error) if error.is_io_error() => None,
        Err(error) => {
            let text = error_text(&error);
            assert!(text.starts_with("ERR internal error"), "{text}");
            None
        }
    }
}

/// The client gives its hold back, also one that it was told of as an error.
#[track_caller]
fn gives_back(con: &mut Connection, owner: &str, reply: RedisResult<Value>) {
    let granted = told(reply).is_some();
    let unlocked = run(con, &format!("RWLOCK.UNLOCK lock {owner}"));
    assert!(!granted || unlocked.is_ok(), "{owner}: {unlocked:?}");
}

/// Waits for the answers of a writer and of a reader behind it.
#[track_caller]
fn both_are_answered(con: &mut Connection, mut writer: Client, mut reader: Client) {
    let reply = writer.reply();
    disarm(con);
    gives_back(con, "writer", reply);
    let reply = reader.reply();
    gives_back(con, "reader", reply);
}

/// A lock that is held by `holder`, with a lease of so many ms, and waited for.
#[track_caller]
fn contended(server: &Server, con: &mut Connection, lease: &str) -> (Client, Client) {
    ok(con, &format!("WLOCK lock holder {lease}"));
    let writer = Client::waits(server, &format!("WLOCK lock writer {HOUR} BLOCK 0"));
    let reader = Client::waits(server, &format!("RLOCK lock reader {HOUR} BLOCK 0"));
    (writer, reader)
}

#[test]
fn in_a_request() {
    for request in ["WLOCK", "WLOCK FENCE SESSION", "RLOCK"] {
        let (command, options) = request.split_once(' ').unwrap_or((request, ""));
        let line = format!("RWLOCK.{command} lock a {HOUR} {options}");
        Rounds::new().play(|server, con, calls| {
            let mut asks = server.connection();
            let reply = armed(&mut asks, calls, &[line.trim_end()]).remove(0);
            disarm(con);
            // Also a hold that a client was told of as an error has an end.
            let ttl = int(call!(con, "PTTL", "lock"));
            assert!(ttl == -2 || ttl > 0, "{request}: {ttl} after {calls} calls");
            gives_back(con, "a", reply);
        });
    }
}

#[test]
fn while_a_queue_is_served() {
    Rounds::new().play(|server, con, calls| {
        let (writer, reader) = contended(server, con, HOUR);
        let reply = armed(con, calls, &["RWLOCK.UNLOCK lock holder"]).remove(0);
        if told(reply).is_none() {
            let _ = run(con, "RWLOCK.UNLOCK lock holder");
        }
        both_are_answered(con, writer, reader);
    });
}

#[test]
fn in_a_timer() {
    Rounds::new().play(|server, con, calls| {
        let (writer, reader) = contended(server, con, HOUR);
        assert_eq!(int(call!(con, "PEXPIRE", "lock", 20)), 1);
        armed(con, calls, &[]);
        both_are_answered(con, writer, reader);
    });
}

#[test]
fn when_a_waiters_time_is_up() {
    Rounds::new().play(|server, con, calls| {
        ok(con, &format!("WLOCK lock holder {HOUR}"));
        let mut waiter = Client::sends(server, &format!("WLOCK lock waiter {HOUR} BLOCK 20"));
        armed(con, calls, &[]);
        told(waiter.reply());
    });
}

#[test]
fn when_a_waiter_disconnects() {
    Rounds::new().play(|server, con, calls| {
        let (writer, mut reader) = contended(server, con, HOUR);
        let id = writer.id;
        let kill = format!("CLIENT KILL ID {id}");
        assert_eq!(armed(con, calls, &[&kill]), [Ok(Value::Int(1))]);
        wait_until("the client is gone", || {
            text(call!(con, "CLIENT", "LIST", "ID", id)).is_empty()
        });
        disarm(con);
        assert_eq!(int(run(con, "RWLOCK.UNLOCK lock holder")), 1);
        gives_back(con, "reader", reader.reply());
    });
}

#[test]
fn when_a_waiter_is_unblocked() {
    for how in ["TIMEOUT", "ERROR"] {
        Rounds::new().play(|server, con, calls| {
            let (mut writer, mut reader) = contended(server, con, HOUR);
            let unblock = format!("CLIENT UNBLOCK {} {how}", writer.id);
            assert_eq!(armed(con, calls, &[&unblock]), [Ok(Value::Int(1))]);
            let reply = writer.reply();
            assert_eq!(reply.is_err(), how == "ERROR" || told(reply.clone()).is_none());
            disarm(con);
            assert_eq!(int(run(con, "RWLOCK.UNLOCK lock holder")), 1);
            gives_back(con, "reader", reader.reply());
        });
    }
}

#[test]
fn when_a_session_ends() {
    Rounds::new().play(|server, con, calls| {
        let mut holder = server.connection();
        // A hold that could not be given back ends with its lease.
        ok(&mut holder, "WLOCK lock holder 300 SESSION");
        let writer = Client::waits(server, &format!("WLOCK lock writer {HOUR} BLOCK 0"));
        let reader = Client::waits(server, &format!("RLOCK lock reader {HOUR} BLOCK 0"));
        armed(con, calls, &[]);
        close(holder, con);
        both_are_answered(con, writer, reader);
    });
}

#[test]
fn in_a_key_event() {
    Rounds::new().play(|server, con, calls| {
        let (writer, reader) = contended(server, con, HOUR);
        assert_eq!(armed(con, calls, &["DEL lock"]), [Ok(Value::Int(1))]);
        both_are_answered(con, writer, reader);
    });
}

#[test]
fn in_a_reply_of_many_parts() {
    for command in
        ["RWLOCK.INSPECT lock", "RWLOCK.QUEUES", "RWLOCK.LOG", "RWLOCK.HOTLOCKS", "RWLOCK.HELP"]
    {
        Rounds::new().play(|server, con, calls| {
            ok(con, &format!("WLOCK lock holder {HOUR}"));
            let mut asks = server.connection();
            told(armed(&mut asks, calls, &[command]).remove(0));
        });
    }
}
