//! What shall change in a lock's hash.

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

/// A string that was there already, or one that was made for this.
pub(super) enum Word<'a> {
    Lent(&'a Str),
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
    /// The mode field shall say this.
    pub fn set_mode(&mut self, mode: Mode) {
        let value = match mode {
            Mode::Read => &WORDS.read,
            Mode::Write => &WORDS.write,
        };
        self.set.push((Word::Lent(&WORDS.mode), Word::Lent(value)));
    }

    /// A field shall say `count`, and says `stored`. 0 is no field.
    pub fn count(&mut self, field: impl FnOnce() -> Word<'a>, count: u64, stored: u64) {
        if count == stored {
            return;
        }
        match i64::try_from(count) {
            Ok(1) => self.set.push((field(), Word::Lent(&WORDS.one))),
            Ok(count) if count > 1 => self.set.push((field(), Word::Made(Text::number(count)))),
            _ => self.delete.push(field()),
        }
    }

    /// Whether nothing shall change.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }

    /// Writes and propagates them. Sets first: a hash goes with its last field.
    pub fn write(&self, out: &Propagation<'_>, key: &Str, hash: &mut Key<'_>) {
        let mut args: SmallVec<[&Str; 8]> = SmallVec::new();
        if !self.set.is_empty() {
            args.push(key);
            for (field, value) in &self.set {
                hash.hash_set(field.str(), Some(value.str()));
                args.extend([field.str(), value.str()]);
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
