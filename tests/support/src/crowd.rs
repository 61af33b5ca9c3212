//! A server with clients that wait for its locks.

use redis::{Connection, RedisResult, Value};

use crate::client::words;
use crate::{call, int, list, map, send, text, wait_until, Client, Server};

/// A server, and a connection that looks at it and does what the tests say.
/// Commands are written without the prefix: `WLOCK k a 1000 BLOCK 0`.
pub struct Crowd<'s> {
    pub server: &'s Server,
    /// For commands of the server's own.
    pub con: Connection,
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
        Client::new(self.server)
    }

    /// A new client that sends this and waits now, as INSPECT shows.
    #[track_caller]
    pub fn waits(&mut self, command: &str) -> Client {
        let client = Client::sends(self.server, command);
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
