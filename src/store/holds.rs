//! Reading holds: what the hash counts, and what the timeout keys say of it.

use super::hash::{count, mode_of};
use super::names::{field_name, FieldName};
use super::numbering::{live_ends, Slot, Slots};
use super::{text, Error, Store};
use crate::core::{End, Ends, Mode, MAX_READS};
use crate::ffi::{Key, Kind};

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
    Reads(Slots),
    Writes(u64),
}

impl Stored {
    /// Whether there is a live hold among these.
    pub fn is_live(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(slots) => slots.iter().any(|slot| matches!(slot, Slot::Live(_))),
            Stored::Writes(_) => mode == Mode::Write,
        }
    }

    /// How many live holds there are among these.
    pub fn live(&self, mode: Mode) -> u64 {
        match self {
            Stored::Reads(slots) => live_ends(slots).len() as u64,
            Stored::Writes(count) if mode == Mode::Write => *count,
            Stored::Writes(_) => 0,
        }
    }

    /// Whether what the hash says is not (or no longer) true: a read hold has
    /// lapsed, or a write hold stands in a lock that is in read mode.
    pub fn is_stale(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(slots) => slots.contains(&Slot::Lapsed) || live_ends(slots).is_empty(),
            Stored::Writes(_) => mode == Mode::Read,
        }
    }
}

/// The timeout keys that one command looks at. More, in one lock, only a
/// foreign hand can have counted, and they must not keep the server busy.
const MAX_LOOKED: u64 = 1_000_000;

/// What to do about a read count beyond [`MAX_READS`], and about all of them
/// together beyond [`MAX_LOOKED`].
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
                    Stored::Reads(self.slots(owner, count, excess)?)
                })
            });
            Some(stored.map(|stored| Field { owner: owner.to_vec(), stored }))
        })
    }

    /// What the timeout keys say of an owner's `count` read holds.
    pub(super) fn slots(&self, owner: &[u8], count: u64, excess: Excess) -> Result<Slots, Error> {
        let looked = self.looked.get().saturating_add(count);
        let too_many = count > MAX_READS || looked > MAX_LOOKED;
        if too_many && excess == Excess::Refuse {
            return Err(Error::TooManyReads);
        }
        let count = count.min(MAX_READS).min(MAX_LOOKED.saturating_sub(self.looked.get()));
        self.looked.set(looked);
        (1..=count).map(|number| self.slot(owner, number)).collect()
    }

    /// What the timeout key of an owner's read hold says.
    pub(super) fn slot(&self, owner: &[u8], number: u64) -> Result<Slot, Error> {
        let name = text(&self.name.timeout(owner, number));
        let Some(key) = self.open_derived(&name, self.access) else {
            return Ok(Slot::Lapsed);
        };
        Ok(match self.whose(&key)? {
            Whose::Nobody => Slot::Lapsed,
            Whose::Ours => {
                let end = key.expiry().map_or(End::Never, End::At);
                if self.is_past(end) {
                    Slot::Lapsed
                } else {
                    self.kept.replace(Some((name, key)));
                    Slot::Live(end)
                }
            }
            Whose::Other(lock) => Slot::Foreign(lock),
        })
    }

    /// Whose timeout key this is. Redisson writes `1` where we write the
    /// lock's name.
    pub(super) fn whose(&self, key: &Key<'_>) -> Result<Whose, Error> {
        match key.kind() {
            Kind::Empty => Ok(Whose::Nobody),
            Kind::String => {
                let value = key.string();
                let ours = value == self.name.bytes() || value == b"1";
                Ok(if ours { Whose::Ours } else { Whose::Other(value.to_vec()) })
            }
            Kind::Hash | Kind::Other => Err(Error::WrongType("a timeout key is no string")),
        }
    }
}

pub(super) enum Whose {
    Nobody,
    Ours,
    Other(Vec<u8>),
}
