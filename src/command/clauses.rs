//! The clauses that name several locks: `READ numkeys key [key ...]` and the like, for MLOCK and
//! MUNLOCK.

use super::error::MAX_LOCKS;
use super::{Args, Error};
use crate::ffi::Str;

/// The clauses of a command, each word at most once.
#[derive(Default)]
pub struct Clauses<'a> {
    clauses: Vec<Clause<'a>>,
}

struct Clause<'a> {
    word: &'static str,
    /// The position of the first key in the command.
    position: usize,
    keys: &'a [&'a Str],
}

impl<'a> Clauses<'a> {
    /// Reads the keys of a clause whose word was just read.
    pub fn read(&mut self, word: &'static str, args: &mut Args<'a>) -> Result<(), Error> {
        if self.has(word) {
            return Err(args.syntax());
        }
        let (position, keys) = args.keys()?;
        self.clauses.push(Clause { word, position, keys });
        if self.iter().count() > MAX_LOCKS {
            return Err(Error::TooManyLocks);
        }
        Ok(())
    }

    /// Whether there is a clause of this word.
    pub fn has(&self, word: &str) -> bool {
        self.clauses.iter().any(|clause| clause.word == word)
    }

    /// Whether there is no clause.
    pub fn is_empty(&self) -> bool {
        self.clauses.is_empty()
    }

    /// All locks in the order given, each with the word of its clause.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'a Str)> + '_ {
        self.clauses.iter().flat_map(|clause| clause.keys.iter().map(|key| (clause.word, *key)))
    }

    /// The locks of each clause.
    pub fn each(&self) -> impl Iterator<Item = &'a [&'a Str]> + '_ {
        self.clauses.iter().map(|clause| clause.keys)
    }

    /// The positions of all keys in the command.
    pub fn positions(&self) -> Vec<usize> {
        let of = |clause: &Clause<'_>| clause.position..clause.position + clause.keys.len();
        self.clauses.iter().flat_map(of).collect()
    }
}
