//! The keys of a lock: as a test expects them, and as they are.

use std::collections::BTreeMap;
use std::fmt;

use redis::Connection;

use super::Lease;
use crate::{call, int, list, map, text};

/// All keys of a lock as they shall be.
#[derive(Clone, Debug)]
pub struct State {
    end: Lease,
    reads: Vec<(String, Vec<Lease>)>,
    writes: Vec<(String, i64)>,
    /// Strings by the part of their name that follows the lock's.
    strings: Vec<(String, Option<String>, Lease)>,
}

/// Nobody holds the lock: there is no hash.
pub fn free() -> State {
    State { end: Lease::never(), reads: Vec::new(), writes: Vec::new(), strings: Vec::new() }
}

/// The lock is held, and its hash ends with this lease.
pub fn held(end: &Lease) -> State {
    State { end: end.clone(), ..free() }
}

impl State {
    /// The owner has read holds with these leases, numbered from 1.
    pub fn reads<'l>(mut self, owner: &str, leases: impl IntoIterator<Item = &'l Lease>) -> Self {
        self.reads.push((owner.to_owned(), leases.into_iter().cloned().collect()));
        self
    }

    /// The owner has so many write holds.
    pub fn writes(mut self, owner: &str, holds: i64) -> Self {
        self.writes.push((owner.to_owned(), holds));
        self
    }

    /// The owner's reservation stands.
    pub fn reserved(self, owner: &str, end: &Lease) -> Self {
        self.string("wait_write", owner, end)
    }

    /// There is a timeout key that belongs to no hold.
    pub fn leftover(mut self, owner: &str, number: usize, end: &Lease) -> Self {
        self.strings.push((timeout(owner, number), None, end.clone()));
        self
    }

    /// There is a key with this value, named after the lock.
    pub fn string(mut self, suffix: &str, value: &str, end: &Lease) -> Self {
        self.strings.push((suffix.to_owned(), Some(value.to_owned()), end.clone()));
        self
    }

    /// The keys of the lock with this name.
    pub(super) fn keys(&self, lock: &str) -> BTreeMap<String, Key<Lease>> {
        let mut fields = BTreeMap::new();
        let mut keys = BTreeMap::new();
        for (owner, leases) in &self.reads {
            fields.insert(owner.clone(), leases.len().to_string());
            for (lease, number) in leases.iter().zip(1..) {
                let content = Content::Text(lock.to_owned());
                keys.insert(
                    derived(lock, &timeout(owner, number)),
                    Key { content, end: lease.clone() },
                );
            }
        }
        for (owner, holds) in &self.writes {
            fields.insert(format!("{owner}:write"), holds.to_string());
        }
        for (suffix, value, end) in &self.strings {
            let content = Content::Text(value.clone().unwrap_or_else(|| lock.to_owned()));
            keys.insert(derived(lock, suffix), Key { content, end: end.clone() });
        }
        if !fields.is_empty() {
            let mode = if self.writes.is_empty() { "read" } else { "write" };
            fields.insert("mode".to_owned(), mode.to_owned());
            let hash = Key { content: Content::Hash(fields), end: self.end.clone() };
            keys.insert(lock.to_owned(), hash);
        }
        keys
    }
}

/// A key: what it holds and when it ends.
#[derive(Clone)]
pub(super) struct Key<E> {
    pub content: Content,
    pub end: E,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Hash(BTreeMap<String, String>),
    Text(String),
    Other(String),
}

impl<E: fmt::Debug> fmt::Debug for Key<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} until {:?}", self.content, self.end)
    }
}

/// The name of a key of this lock, which has no brace in its own.
pub(super) fn derived(lock: &str, suffix: &str) -> String {
    format!("{{{lock}}}:{suffix}")
}

/// The part of a timeout key's name that follows the lock's.
pub(super) fn timeout(owner: &str, number: usize) -> String {
    format!("{owner}:rwlock_timeout:{number}")
}

/// The keys of this lock as they are.
pub(super) fn find(con: &mut Connection, lock: &str) -> BTreeMap<String, Key<Option<i64>>> {
    let mut names: Vec<String> =
        list(call!(con, "KEYS", derived(lock, "*"))).iter().map(text).collect();
    names.push(lock.to_owned());
    names
        .into_iter()
        .filter_map(|name| {
            let content = match text(call!(con, "TYPE", &name)).as_str() {
                "none" => return None,
                "string" => Content::Text(text(call!(con, "GET", &name))),
                "hash" => Content::Hash(
                    map(call!(con, "HGETALL", &name))
                        .into_iter()
                        .map(|(field, value)| (field, text(value)))
                        .collect(),
                ),
                other => Content::Other(other.to_owned()),
            };
            let end = Some(int(call!(con, "PEXPIRETIME", &name))).filter(|end| *end != -1);
            Some((name, Key { content, end }))
        })
        .collect()
}
