//! The whole keyspace of a server, read with plain commands.

use std::collections::BTreeMap;

use redis::Connection;

use crate::{assert_ok, bytes, call, int, list, map, text, wait_until, Server};

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

/// The same, once all that lapsed is cleaned up: the module does so at once,
/// but not within the command that brought it about.
#[track_caller]
pub fn settled_keyspace(server: &Server) -> BTreeMap<Name, Stored> {
    let mut con = server.connection();
    for database in DATABASES {
        assert_ok(call!(con, "SELECT", database));
        wait_until("no lock has a lapsed hold", || {
            list(call!(con, "KEYS", "*")).into_iter().map(bytes).all(|key| {
                text(call!(con, "TYPE", &key)) != "hash" || counts_live_holds(&mut con, &key)
            })
        });
    }
    keyspace(server)
}

/// Whether a lock's hash counts the holds that INSPECT shows, and no others.
fn counts_live_holds(con: &mut Connection, lock: &[u8]) -> bool {
    let picture = map(call!(con, "RWLOCK.INSPECT", lock));
    let mut shown: Vec<(Vec<u8>, i64)> = list(&picture["holders"])
        .iter()
        .map(map)
        .map(|holder| {
            let suffix: &[u8] = if text(&holder["kind"]) == "write" { b":write" } else { b"" };
            ([&bytes(&holder["owner"])[..], suffix].concat(), int(&holder["holds"]))
        })
        .collect();
    let flat: Vec<Vec<u8>> = list(call!(con, "HGETALL", lock)).into_iter().map(bytes).collect();
    let pairs = flat.chunks(2).filter(|pair| pair[0] != b"mode");
    let number = |value: &[u8]| String::from_utf8_lossy(value).parse().unwrap_or(0);
    let mut counted: Vec<(Vec<u8>, i64)> =
        pairs.map(|pair| (pair[0].clone(), number(&pair[1]))).collect();
    shown.sort();
    counted.sort();
    shown == counted
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
