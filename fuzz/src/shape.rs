//! What the keys must look like as long as nobody but the module writes them (`docs/keys.md`).

use crate::grammar::{integer, timeout_key};
use crate::keys::{Bytes, Key, Keys, Value};
use std::collections::BTreeSet;

/// Checks all keys, when no hold has lapsed that the module has not met.
pub fn check(keys: &Keys) {
    let mut expected = BTreeSet::new();
    for ((db, name), key) in &keys.0 {
        let Value::Hash(fields) = &key.value else {
            continue;
        };
        expected.insert(name.clone());
        let mode = fields.get(b"mode".as_slice()).expect("a mode");
        let mut writers = BTreeSet::new();
        let mut owners = BTreeSet::new();
        let mut latest = None;
        for (field, value) in fields.iter().filter(|(field, _)| *field != b"mode") {
            let count = integer(value).filter(|count| *count > 0);
            let count = count.unwrap_or_else(|| panic!("{name:?}: {field:?} counts {value:?}"));
            if let Some(owner) = field.strip_suffix(b":write") {
                writers.insert(owner);
                owners.insert(owner);
                continue;
            }
            owners.insert(field.as_slice());
            for number in 1..=count as u64 {
                let timeout = timeout_key(name, field, number);
                let found = keys.get(*db, &timeout);
                let Some(Key { value: Value::String(lock), expiry: Some(end) }) = found else {
                    panic!("{name:?}: no timeout key {timeout:?}, or without an end: {found:?}");
                };
                assert_eq!(lock, name, "the lock of the timeout key {timeout:?}");
                expected.insert(timeout);
                latest = latest.max(Some(*end));
            }
        }
        let end = key.expiry.unwrap_or_else(|| panic!("{name:?} has no expiry"));
        match mode.as_slice() {
            b"read" => {
                assert!(writers.is_empty(), "{name:?}: a writer in read mode: {fields:?}");
                assert_eq!(latest, Some(end), "{name:?}: the end of the hash");
            }
            b"write" => {
                assert_eq!(writers.len(), 1, "{name:?}: {fields:?}");
                assert_eq!(owners, writers, "{name:?}: a reader beside the writer: {fields:?}");
                assert!(latest <= Some(end), "{name:?} ends before a read hold");
            }
            mode => panic!("{name:?}: mode {mode:?}"),
        }
    }
    for ((_, name), key) in &keys.0 {
        let is_other = |end: &&[u8]| name.ends_with(end);
        let others = [b":wait_write".as_slice(), b":rwlock_fence"];
        let is_string = matches!(key.value, Value::String(_));
        let is_known = expected.contains(name) || is_string && others.iter().any(|e| is_other(&e));
        assert!(is_known, "a key that no lock needs: {name:?} {key:?}");
    }
}

/// The keys that one grant on a free lock makes. `is_write`: the kind of hold.
pub fn grant(keys: &mut Keys, lock: &[u8], owner: &[u8], end: i64, is_write: bool) {
    let field: Bytes = if is_write { [owner, b":write"].concat() } else { owner.to_vec() };
    let mode: &[u8] = if is_write { b"write" } else { b"read" };
    let fields: [(&[u8], &[u8]); 2] = [(b"mode", mode), (&field, b"1")];
    keys.put(0, lock, Key::hash(fields).until(Some(end)));
    if !is_write {
        keys.put(0, &timeout_key(lock, owner, 1), Key::string(lock).until(Some(end)));
    }
}
