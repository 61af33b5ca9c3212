//! Seeing what a server keeps, tells and announces; and a workload that gives it
//! something to keep.

mod keyspace;
mod subscriber;
mod workload;

pub use keyspace::{assert_same_keys, keyspace, settled_keyspace};
pub use subscriber::Subscriber;
pub use workload::{under_load, Workload};

use redis::{Connection, RedisResult, Value};

use crate::{int, map, micros, send, Server};

/// Sends a command written as in a terminal, words between single spaces.
pub fn run(con: &mut Connection, line: &str) -> RedisResult<Value> {
    send(con, line.split(' '))
}

/// The server's clock, unix time in ms.
#[track_caller]
pub fn clock(con: &mut Connection) -> i64 {
    micros(run(con, "TIME")) / 1_000
}

/// A field of RWLOCK.INSPECT.
#[track_caller]
pub fn inspect(con: &mut Connection, lock: &str, field: &str) -> Value {
    map(run(con, &format!("RWLOCK.INSPECT {lock}")))[field].clone()
}

/// A number in a section of INFO.
#[track_caller]
pub fn info_number(server: &Server, section: &str, field: &str) -> i64 {
    let info = server.info(section);
    info[field].parse().unwrap_or_else(|error| panic!("{field} {:?}: {error}", info[field]))
}

/// The absolute expiry of a key.
#[track_caller]
pub fn ends_at(con: &mut Connection, key: &str) -> i64 {
    int(send(con, ["PEXPIRETIME", key]))
}
