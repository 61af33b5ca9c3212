//! What the keys of a lock mean, whoever wrote them: the docs (`docs/keys.md`) written down a
//! second time.

use crate::grammar::{integer, is_owner, prefix, timeout_key};
use crate::keys::{Bytes, Key, Keys, Value};
use std::collections::BTreeMap;

/// The holds of a lock that live now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The ends of each owner's read holds, lowest number first.
    pub reads: BTreeMap<Bytes, Vec<Option<i64>>>,
    /// The number of each owner's write holds.
    pub writes: BTreeMap<Bytes, i64>,
}

impl Seen {
    pub fn is_free(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    pub fn reads_of(&self, owner: &[u8]) -> usize {
        self.reads.get(owner).map_or(0, Vec::len)
    }

    pub fn writes_of(&self, owner: &[u8]) -> i64 {
        self.writes.get(owner).copied().unwrap_or(0)
    }

    /// How many holds each owner has. The ends of session holds move by themselves.
    pub fn counts(&self) -> (BTreeMap<Bytes, usize>, BTreeMap<Bytes, i64>) {
        let reads = self.reads.iter().map(|(owner, ends)| (owner.clone(), ends.len()));
        (reads.collect(), self.writes.clone())
    }

    /// Without the holds of this owner.
    pub fn without(&self, owner: &[u8]) -> Seen {
        let mut others = self.clone();
        others.reads.remove(owner);
        others.writes.remove(owner);
        others
    }
}

/// Why the keys are no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The key is no hash, or the hash is not that of a lock. No command may touch it.
    NoLock,
    /// Something in it is wrong. A command that does not read it may go on.
    Part,
}

/// The most read holds of an owner.
const MAX_READS: i64 = 65_535;

/// Reads a lock from the keys that live.
pub fn read(keys: &Keys, lock: &[u8]) -> Result<Seen, Wrong> {
    let Some(key) = keys.get(0, lock) else {
        return Ok(Seen::default());
    };
    let Value::Hash(fields) = &key.value else {
        return Err(Wrong::NoLock);
    };
    let is_write = match fields.get(b"mode".as_slice()).map(Vec::as_slice) {
        Some(b"read") => false,
        Some(b"write") => true,
        _ => return Err(Wrong::NoLock),
    };
    let has_writer = fields.keys().any(|field| field.ends_with(b":write"));
    if is_write && !has_writer {
        return Err(Wrong::NoLock);
    }
    let mut seen = Seen::default();
    let mut counted = 0;
    for (field, value) in fields.iter().filter(|(field, _)| *field != b"mode") {
        let count = integer(value).filter(|count| *count > 0).ok_or(Wrong::Part)?;
        if let Some(owner) = field.strip_suffix(b":write") {
            if is_write {
                seen.writes.insert(owner.to_vec(), count);
            }
            continue;
        }
        counted += count.min(MAX_READS + 1);
        if count > MAX_READS || counted > 1_000_000 {
            return Err(Wrong::Part);
        }
        let mut ends = Vec::new();
        for number in 1..=count as u64 {
            match keys.get(0, &timeout_key(lock, field, number)) {
                None => {}
                Some(Key { value: Value::String(of), expiry }) => {
                    if of == lock || of == b"1" {
                        ends.push(*expiry);
                    }
                }
                Some(_) => return Err(Wrong::Part),
            }
        }
        if !ends.is_empty() {
            seen.reads.insert(field.clone(), ends);
        }
    }
    Ok(seen)
}

/// The owner that has reserved the lock.
pub fn reserved(keys: &Keys, lock: &[u8]) -> Result<Option<Bytes>, Wrong> {
    let name = [&prefix(lock), b":wait_write".as_slice()].concat();
    match keys.get(0, &name).map(|key| &key.value) {
        None => Ok(None),
        Some(Value::String(owner)) if is_owner(owner) => Ok(Some(owner.clone())),
        Some(_) => Err(Wrong::Part),
    }
}

/// The last fencing token.
pub fn fence(keys: &Keys, lock: &[u8]) -> Result<i64, Wrong> {
    let name = [&prefix(lock), b":rwlock_fence".as_slice()].concat();
    match keys.get(0, &name).map(|key| &key.value) {
        None => Ok(0),
        Some(Value::String(token)) => integer(token).filter(|token| *token > 0).ok_or(Wrong::Part),
        Some(_) => Err(Wrong::Part),
    }
}
