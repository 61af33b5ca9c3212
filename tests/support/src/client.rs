//! A client whose reply may be pending.

use std::time::Instant;

use redis::{Cmd, Connection, RedisResult, Value};

use crate::{assert_error, assert_ok, call, int, text, wait_until, Server};

/// A client with a connection of its own, that may have sent a command whose reply it has
/// not read. Commands are written without the prefix: `WLOCK k a 1000 BLOCK 0`.
pub struct Client {
    pub con: Connection,
    /// As INSPECT and CLIENT name it.
    pub id: i64,
}

impl Client {
    /// A new client.
    #[track_caller]
    pub fn new(server: &Server) -> Self {
        let mut con = server.connection();
        let id = int(call!(con, "CLIENT", "ID"));
        Self { con, id }
    }

    /// A new client that sends this.
    #[track_caller]
    pub fn sends(server: &Server, command: &str) -> Self {
        let mut client = Self::new(server);
        client.send(command);
        client
    }

    /// A new client that sends this and is blocked now, as the server shows.
    #[track_caller]
    pub fn waits(server: &Server, command: &str) -> Self {
        let client = Self::sends(server, command);
        let mut con = server.connection();
        wait_until(&format!("{command} waits"), || is_blocked(&mut con, client.id));
        client
    }

    /// Sends a command of the module, and does not wait for the reply.
    #[track_caller]
    pub fn send(&mut self, command: &str) {
        let mut cmd = Cmd::new();
        for word in words(command) {
            cmd.arg(word);
        }
        self.con.send_packed_command(&cmd.get_packed_command()).expect("send a command");
    }

    /// The reply, when it comes.
    pub fn reply(&mut self) -> RedisResult<Value> {
        match self.con.recv_response()? {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// The reply comes, and is `OK`. Gives the time at which it came.
    #[track_caller]
    pub fn granted(&mut self) -> Instant {
        assert_ok(self.reply());
        Instant::now()
    }

    /// The reply comes, and is an integer.
    #[track_caller]
    pub fn refused(&mut self) -> i64 {
        int(self.reply())
    }

    /// The reply comes, and is an error that starts with this.
    #[track_caller]
    pub fn fails(&mut self, start: &str) -> String {
        assert_error(self.reply(), start)
    }
}

/// The words of a command, the first with the prefix.
pub(crate) fn words(command: &str) -> impl Iterator<Item = String> + '_ {
    command.split(' ').enumerate().map(|(at, word)| match at {
        0 => format!("RWLOCK.{word}"),
        _ => word.to_owned(),
    })
}

/// Whether the server has a client blocked, as another one sees it.
pub fn is_blocked(con: &mut Connection, id: i64) -> bool {
    let line = text(call!(con, "CLIENT", "LIST", "ID", id));
    line.split(' ')
        .find_map(|field| field.strip_prefix("flags="))
        .is_some_and(|flags| flags.contains('b'))
}
