//! The changes of a lock's hash.

use super::propagation::{Plain, Propagation};
use super::WORDS;
use crate::core::Mode;
use crate::ffi::{Key, Str, Text};
use smallvec::SmallVec;

/// The fields to set and to delete.
#[derive(Default)]
pub(super) struct Fields<'a> {
    set: SmallVec<[(Word<'a>, Word<'a>); 2]>,
    delete: SmallVec<[Word<'a>; 2]>,
}

/// The name or the value of a field.
pub(super) enum Word<'a> {
    /// A string that the caller lends.
    Lent(&'a Str),
    /// A new string.
    Made(Text),
}

impl Word<'_> {
    fn str(&self) -> &Str {
        match self {
            Word::Lent(text) => text,
            Word::Made(text) => text,
        }
    }
}

impl<'a> Fields<'a> {
    /// Sets the mode field.
    pub fn set_mode(&mut self, mode: Mode) {
        let value = match mode {
            Mode::Read => &WORDS.read,
            Mode::Write => &WORDS.write,
        };
        self.set.push((Word::Lent(&WORDS.mode), Word::Lent(value)));
    }

    /// Sets a count that is `stored` in the hash to `count`. A count of 0 is a field that does not
    /// exist.
    pub fn set_count(&mut self, field: impl FnOnce() -> Word<'a>, count: u64, stored: u64) {
        if count == stored {
            return;
        }
        match i64::try_from(count) {
            Ok(1) => self.set.push((field(), Word::Lent(&WORDS.one))),
            Ok(count) if count > 1 => self.set.push((field(), Word::Made(Text::number(count)))),
            _ => self.delete.push(field()),
        }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }

    /// Writes and propagates the changes. Sets fields before it deletes fields, because the server
    /// deletes a hash with its last field.
    pub fn write(&self, out: &Propagation<'_>, key: &Str, hash: &mut Key<'_>) {
        let mut args: SmallVec<[&Str; 8]> = SmallVec::new();
        if !self.set.is_empty() {
            args.push(key);
            for (field, value) in &self.set {
                args.extend_from_slice(&[field.str(), value.str()]);
            }
            match args[1..] {
                // A new lock.
                [mode, its, field, count] => hash.hash_set_two([(mode, its), (field, count)]),
                _ => args[1..].chunks_exact(2).for_each(|set| hash.hash_set(set[0], Some(set[1]))),
            }
            out.propagate(Plain::HSet, &args);
        }
        if !self.delete.is_empty() {
            args.clear();
            args.push(key);
            for field in &self.delete {
                hash.hash_set(field.str(), None);
                args.push(field.str());
            }
            out.propagate(Plain::HDel, &args);
        }
    }
}
