//! Slots that move from one node of a cluster to another.

use redis::{Connection, RedisResult, Value};

use super::cluster::{node_id, Cluster};
use super::running::Server;
use super::slot::slot;
use crate::{assert_ok, call, list, map, send, text, wait_until};

/// The two nodes are told that the slot of `key` moves.
#[track_caller]
pub fn begin_to_move(key: &[u8], from: &Server, to: &Server) {
    assert_ok(set_slot(to, key, &["IMPORTING", &id(from)]));
    assert_ok(set_slot(from, key, &["MIGRATING", &id(to)]));
}

/// Moves all keys of the slot of `key`, not the slot.
#[track_caller]
pub fn move_keys(key: &[u8], from: &Server, to: &Server) {
    let mut con = from.connection();
    loop {
        let keys = call!(con, "CLUSTER", "GETKEYSINSLOT", slot(key), 10);
        let keys: Vec<String> = list(keys).into_iter().map(text).collect();
        if keys.is_empty() {
            return;
        }
        assert_ok(send(&mut con, migrate(to, &keys)));
    }
}

/// The words of a MIGRATE of these keys.
pub fn migrate(to: &Server, keys: &[String]) -> Vec<String> {
    let words = ["MIGRATE", "127.0.0.1", &to.port().to_string(), "", "0", "10000", "KEYS"];
    words.into_iter().map(str::to_owned).chain(keys.iter().cloned()).collect()
}

/// Sets the state of the slot of `key` in a node's eyes: `NODE <id>`, `STABLE`.
pub fn set_slot(node: &Server, key: &[u8], state: &[&str]) -> RedisResult<Value> {
    let number = slot(key).to_string();
    let words = ["CLUSTER", "SETSLOT", &number].into_iter().chain(state.iter().copied());
    send(&mut node.connection(), words)
}

/// The id of a node.
#[track_caller]
pub fn id(node: &Server) -> String {
    let mut con: Connection = node.connection();
    node_id(&mut con)
}

/// How a slot moves to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Key by key, in as short a time as can be.
    Quickly,
    /// Key by key, and the slot stays under way for a while.
    Slowly,
    /// All keys with the slot in one step (CLUSTER MIGRATESLOTS).
    Atomically,
}

impl Migration {
    /// The kinds that this server has.
    pub fn kinds(server: &Server) -> Vec<Migration> {
        let mut kinds = vec![Migration::Quickly, Migration::Slowly];
        if server.version().at_least((u32::MAX, 0), (9, 0)) {
            kinds.push(Migration::Atomically);
        }
        kinds
    }
}

impl Cluster {
    /// Moves the slot of `key` atomically.
    #[track_caller]
    pub fn move_atomically(&self, key: &[u8], from: &Server, to: &Server) {
        let (number, to_id) = (slot(key).to_string(), id(to));
        let mut con = from.connection();
        let range = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &number, &number, "NODE", &to_id];
        assert_ok(send(&mut con, range));
        wait_until("the slot has moved", || {
            let newest = list(call!(con, "CLUSTER", "GETSLOTMIGRATIONS")).remove(0);
            let state = text(map(&newest)["state"].clone());
            assert!(!["failed", "cancelled"].contains(&state.as_str()), "{newest:?}");
            state == "success"
        });
        self.wait_ok();
    }

    /// Moves the keys of the slot of `key`, and then the slot, which was begun.
    #[track_caller]
    pub fn finish_move(&self, key: &[u8], from: &Server, to: &Server) {
        move_keys(key, from, to);
        // Replicas learn it from their primaries.
        for node in [to, from] {
            assert_ok(set_slot(node, key, &["NODE", &id(to)]));
        }
        self.wait_ok();
    }
}
