//! Clients that wait for locks, each with a connection of its own.

use std::time::Instant;

use redis::{Cmd, Connection, RedisResult, Value};

use crate::harness::{
    assert_error, assert_ok, call, int, list, map, send, text, wait_until, Server,
};

/// A server, and a connection that looks at it and does what the tests say.
/// Commands are written without the prefix: `WLOCK k a 1000 BLOCK 0`.
pub struct Crowd<'s> {
    pub server: &'s Server,
    /// For commands of the server's own.
    pub con: Connection,
}

/// A client that has sent a command whose reply it has not read.
pub struct Client {
    pub con: Connection,
    /// As INSPECT and CLIENT name it.
    pub id: i64,
}

impl<'s> Crowd<'s> {
    pub fn on(server: &'s Server) -> Self {
        Self { server, con: server.connection() }
    }

    /// Runs a command of the module, whatever comes of it.
    pub fn run(&mut self, command: &str) -> RedisResult<Value> {
        send(&mut self.con, words(command))
    }

    /// Runs a command of the module that is answered `OK`.
    #[track_caller]
    pub fn ok(&mut self, command: &str) {
        assert_eq!(self.run(command), Ok(Value::Okay), "{command}");
    }

    /// Runs a command of the module that is answered with this integer.
    #[track_caller]
    pub fn gives(&mut self, command: &str, expected: i64) {
        assert_eq!(int(self.run(command)), expected, "{command}");
    }

    /// Runs a request that is refused; gives the ms that it is told.
    #[track_caller]
    pub fn refused(&mut self, command: &str) -> i64 {
        match self.run(command) {
            Ok(Value::Int(left)) => left,
            other => panic!("{command}: {other:?} is no refusal"),
        }
    }

    /// Runs a command of the server's own, which succeeds.
    #[track_caller]
    pub fn plain(&mut self, command: &str) -> Value {
        send(&mut self.con, command.split(' ')).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// A new client.
    #[track_caller]
    pub fn client(&self) -> Client {
        let mut con = self.server.connection();
        let id = int(call!(con, "CLIENT", "ID"));
        Client { con, id }
    }

    /// A new client that sends this and waits now, as INSPECT shows.
    #[track_caller]
    pub fn waits(&mut self, command: &str) -> Client {
        let mut client = self.client();
        client.send(command);
        let lock = command.split(' ').nth(1).expect("a command with a key");
        wait_until(command, || self.waiting(lock).contains(&client.id));
        client
    }

    /// What INSPECT says.
    #[track_caller]
    pub fn inspect(&mut self, lock: &str) -> std::collections::BTreeMap<String, Value> {
        map(call!(self.con, "RWLOCK.INSPECT", lock))
    }

    /// The ids of the clients that wait for a lock.
    #[track_caller]
    pub fn waiting(&mut self, lock: &str) -> Vec<i64> {
        list(&self.inspect(lock)["waiters"]).iter().map(|w| int(&map(w)["client"])).collect()
    }

    /// Who waits for a lock, in the order of service: `a read, b write`.
    #[track_caller]
    pub fn queue(&mut self, lock: &str) -> String {
        owners(&self.inspect(lock)["waiters"])
    }

    /// Who holds a lock, in the order of their names: `a read, b read`.
    #[track_caller]
    pub fn holders(&mut self, lock: &str) -> String {
        owners_sorted(&self.inspect(lock)["holders"])
    }

    /// Nobody waits for anything.
    #[track_caller]
    pub fn nobody_waits(&mut self) {
        assert_eq!(list(call!(self.con, "RWLOCK.QUEUES")), []);
    }
}

impl Client {
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

/// Those that an array of INSPECT lists: `a read, b write`.
pub fn owners(list_of_maps: &Value) -> String {
    names(list_of_maps).join(", ")
}

/// The same, in the order of their names.
pub fn owners_sorted(list_of_maps: &Value) -> String {
    let mut names = names(list_of_maps);
    names.sort();
    names.join(", ")
}

fn names(list_of_maps: &Value) -> Vec<String> {
    let name = |one: &Value| {
        let one = map(one);
        format!("{} {}", text(&one["owner"]), text(&one["kind"]))
    };
    list(list_of_maps).iter().map(name).collect()
}

fn words(command: &str) -> impl Iterator<Item = String> + '_ {
    command.split(' ').enumerate().map(|(at, word)| match at {
        0 => format!("RWLOCK.{word}"),
        _ => word.to_owned(),
    })
}
