//! Reading holds: what the hash counts, and what the timeout keys say of it.

use super::hash::{count, mode_of};
use super::names::{field_name, FieldName};
use super::numbering::{live_ends, ReadHold, ReadHolds};
use super::{text, Error, Store};
use crate::core::{End, Ends, Mode, MAX_READS};
use crate::ffi::{Key, KeyType};

/// One field of a lock's hash.
pub struct Entry {
    /// Whose it is.
    pub owner: Vec<u8>,
    /// What it says.
    pub held: Held,
}

/// The holds of one owner and one kind.
pub enum Held {
    /// Read holds: the ends of the live ones.
    Reads(Ends),
    /// Write holds.
    Writes(u64),
}

/// One field, with all that is needed to mend it.
pub(super) struct Field {
    pub owner: Vec<u8>,
    pub stored: Stored,
}

pub(super) enum Stored {
    Reads(ReadHolds),
    Writes(u64),
}

impl Stored {
    /// Whether there is a live hold among these.
    pub fn is_live(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(read_holds) => {
                read_holds.iter().any(|read_hold| matches!(read_hold, ReadHold::Live(_)))
            }
            Stored::Writes(_) => mode == Mode::Write,
        }
    }

    /// How many live holds there are among these.
    pub fn live(&self, mode: Mode) -> u64 {
        match self {
            Stored::Reads(read_holds) => live_ends(read_holds).len() as u64,
            Stored::Writes(count) if mode == Mode::Write => *count,
            Stored::Writes(_) => 0,
        }
    }

    /// Whether what the hash says is not (or no longer) true: a read hold has
    /// lapsed, or a write hold stands in a lock that is in read mode.
    pub fn is_stale(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(read_holds) => {
                read_holds.contains(&ReadHold::Lapsed) || live_ends(read_holds).is_empty()
            }
            Stored::Writes(_) => mode == Mode::Read,
        }
    }
}

/// The timeout keys that one command looks at. More, in one lock, only a
/// foreign hand can have counted, and they must not keep the server busy.
const MAX_KEYS_READ: u64 = 1_000_000;

/// What to do about a read count beyond [`MAX_READS`], and about all of them
/// together beyond [`MAX_KEYS_READ`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// It is an error.
    Refuse,
    /// Look no further than that.
    Ignore,
}

impl<'c> Store<'c> {
    /// Who writes, if anybody does.
    pub fn writer(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(None);
        };
        let mut fields = hash.fields().filter(|_| mode_of(hash) == Ok(Mode::Write));
        Ok(fields.find_map(|(field, _)| match field_name(&field) {
            FieldName::Writes(owner) => Some(owner.to_vec()),
            FieldName::Mode | FieldName::Reads(_) => None,
        }))
    }

    /// Every field of the lock's hash but the mode.
    pub(super) fn fields<'s>(
        &'s self,
        hash: &'s Key<'_>,
        excess: Excess,
    ) -> impl Iterator<Item = Result<Field, Error>> + use<'s, 'c> {
        hash.fields().filter_map(move |(field, value)| {
            let (owner, is_write) = match field_name(&field) {
                FieldName::Mode => return None,
                FieldName::Reads(owner) => (owner, false),
                FieldName::Writes(owner) => (owner, true),
            };
            let stored = count(&value).and_then(|count| {
                Ok(if is_write {
                    Stored::Writes(count)
                } else {
                    Stored::Reads(self.read_holds(owner, count, excess)?)
                })
            });
            Some(stored.map(|stored| Field { owner: owner.to_vec(), stored }))
        })
    }

    /// What the timeout keys say of an owner's `count` read holds.
    pub(super) fn read_holds(
        &self,
        owner: &[u8],
        count: u64,
        excess: Excess,
    ) -> Result<ReadHolds, Error> {
        let keys_read = self.keys_read.get().saturating_add(count);
        let too_many = count > MAX_READS || keys_read > MAX_KEYS_READ;
        if too_many && excess == Excess::Refuse {
            return Err(Error::TooManyReads);
        }
        let count = count.min(MAX_READS).min(MAX_KEYS_READ.saturating_sub(self.keys_read.get()));
        self.keys_read.set(keys_read);
        (1..=count).map(|number| self.read_hold(owner, number)).collect()
    }

    /// What the timeout key of an owner's read hold says.
    pub(super) fn read_hold(&self, owner: &[u8], number: u64) -> Result<ReadHold, Error> {
        let name = text(&self.name.timeout(owner, number));
        let Some(key) = self.open_derived(&name, self.access) else {
            return Ok(ReadHold::Lapsed);
        };
        Ok(match self.whose(&key)? {
            Whose::Nobody => ReadHold::Lapsed,
            Whose::Ours => {
                let end = key.expiry().map_or(End::Never, End::At);
                if self.is_past(end) {
                    ReadHold::Lapsed
                } else {
                    self.kept.replace(Some((name, key)));
                    ReadHold::Live(end)
                }
            }
            Whose::Other(lock) => ReadHold::OfOtherLock(lock),
        })
    }

    /// Whose timeout key this is. Redisson writes `1` where we write the
    /// lock's name.
    pub(super) fn whose(&self, key: &Key<'_>) -> Result<Whose, Error> {
        match key.kind() {
            KeyType::Empty => Ok(Whose::Nobody),
            KeyType::String => {
                let value = key.string();
                let ours = value == self.name.bytes() || value == b"1";
                Ok(if ours { Whose::Ours } else { Whose::Other(value.to_vec()) })
            }
            KeyType::Hash | KeyType::Other => Err(Error::WrongType("a timeout key is no string")),
        }
    }
}

pub(super) enum Whose {
    Nobody,
    Ours,
    Other(Vec<u8>),
}
