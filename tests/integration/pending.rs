//! Clients whose answer is pending, and how late things happen.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{cmd, Connection, RedisResult, Value};

use crate::harness::{assert_ok, call, int, text, wait_until, Server};

/// A client that has sent a command and has yet to read the reply.
pub struct Pending {
    con: Connection,
    id: i64,
}

impl Pending {
    /// Sends the command, `RLOCK lock a 1000 BLOCK 0`, and waits until the
    /// client is blocked.
    #[track_caller]
    pub fn waits(server: &Server, line: &str) -> Self {
        let pending = Self::send(server, line);
        let mut con = server.connection();
        wait_until(&format!("{line} waits"), || is_blocked(&mut con, pending.id));
        pending
    }

    /// Sends the command.
    #[track_caller]
    pub fn send(server: &Server, line: &str) -> Self {
        let mut con = server.connection();
        let id = int(call!(con, "CLIENT", "ID"));
        let line = format!("RWLOCK.{line}");
        let mut words = line.split(' ');
        let mut command = cmd(words.next().unwrap_or_default());
        command.arg(words.collect::<Vec<_>>());
        con.send_packed_command(&command.get_packed_command()).expect("send the command");
        Self { con, id }
    }

    /// The client's id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Waits for the reply.
    pub fn reply(&mut self) -> RedisResult<Value> {
        match self.con.recv_response()? {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// Waits until it has the lock.
    #[track_caller]
    pub fn is_granted(&mut self) {
        assert_ok(self.reply());
    }

    /// Its connection, to go on with.
    pub fn connection(self) -> Connection {
        self.con
    }
}

/// Whether the server has a client blocked, as another one sees it.
pub fn is_blocked(con: &mut Connection, id: i64) -> bool {
    let line = text(call!(con, "CLIENT", "LIST", "ID", id));
    line.split(' ')
        .find_map(|field| field.strip_prefix("flags="))
        .is_some_and(|flags| flags.contains('b'))
}

/// The clock that this machine's servers go by, unix time in ms.
pub fn local_clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
    i64::try_from(now.as_millis()).expect("a time in this age")
}

/// Asserts that something is on time, given by how many ms it was late in
/// several rounds.
///
/// What counts is the lower quartile: the machine may be busy with other
/// things, and that is not what is measured; a timer that is too coarse is late
/// in more than three of four rounds, however idle the machine.
#[track_caller]
pub fn assert_prompt(what: &str, limit: i64, late: &[i64]) {
    let mut sorted = late.to_vec();
    sorted.sort_unstable();
    assert!(sorted[sorted.len() / 4] <= limit, "{what}: by {late:?} ms, more than {limit}");
    assert!(sorted[0] >= 0, "{what}: too early: {late:?}");
}
