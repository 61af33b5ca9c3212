//! The whole keyspace of a server, read with plain commands.

use std::collections::BTreeMap;

use redis::Connection;

use crate::harness::{assert_ok, bytes, call, int, list, text, Server};

/// The databases that tests write to.
const DATABASES: [u8; 2] = [0, 1];

/// A database and a key in it.
type Name = (u8, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    content: Content,
    /// When it expires, unix time in ms; -1: never.
    ends: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Hash(BTreeMap<String, String>),
}

/// What every key holds and when it expires. No lease may run out meanwhile.
#[track_caller]
pub fn keyspace(server: &Server) -> BTreeMap<Name, Stored> {
    let mut con = server.connection();
    let clustered = server.info("cluster")["cluster_enabled"] == "1";
    let mut keys = BTreeMap::new();
    for database in DATABASES.into_iter().filter(|database| *database == 0 || !clustered) {
        if !clustered {
            assert_ok(call!(con, "SELECT", database));
        }
        for key in list(call!(con, "KEYS", "*")) {
            let key = bytes(key);
            keys.insert((database, show(&key)), stored(&mut con, &key));
        }
    }
    keys
}

/// Compares two keyspaces; tells only what differs.
#[track_caller]
pub fn assert_same_keys(
    what: &str,
    expected: &BTreeMap<Name, Stored>,
    found: &BTreeMap<Name, Stored>,
) {
    let names = expected.keys().chain(found.keys());
    let mut differences: Vec<String> = names
        .filter(|name| expected.get(name) != found.get(name))
        .map(|name| {
            format!("{name:?}: expected {:?}, found {:?}", expected.get(name), found.get(name))
        })
        .collect();
    differences.dedup();
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

fn stored(con: &mut Connection, key: &[u8]) -> Stored {
    let content = match text(call!(con, "TYPE", key)).as_str() {
        "string" => Content::Text(show(&bytes(call!(con, "GET", key)))),
        "hash" => {
            let flat: Vec<String> = list(call!(con, "HGETALL", key))
                .into_iter()
                .map(|part| show(&bytes(part)))
                .collect();
            Content::Hash(flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
        }
        other => panic!("{:?} is of type {other}", show(key)),
    };
    Stored { content, ends: int(call!(con, "PEXPIRETIME", key)) }
}

/// Any bytes, readable in a failure.
fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
