//! Holds as the hash and the timeout keys store them.

use super::numbering::{live_ends, ReadHold, ReadHolds};
use crate::core::{Ends, Mode};

/// A field of a lock's hash that has live holds.
pub struct Entry {
    /// The owner of the holds.
    pub owner: Vec<u8>,
    /// The live holds.
    pub held: Held,
}

/// The live holds of one owner and one kind.
pub enum Held {
    /// Read holds: the ends of the live ones.
    Reads(Ends),
    /// The number of write holds.
    Writes(u64),
}

/// A field of a lock's hash, with all that is needed to repair it.
pub(super) struct Field {
    pub owner: Vec<u8>,
    pub stored: Stored,
}

/// The holds of one owner and one kind as they are stored, live or not.
pub(super) enum Stored {
    /// The read holds, by number.
    Reads(ReadHolds),
    /// The number of write holds.
    Writes(u64),
}

impl Stored {
    /// Whether at least one of these holds is live in a lock of this mode.
    pub fn is_live(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(read_holds) => {
                read_holds.iter().any(|read_hold| matches!(read_hold, ReadHold::Live(_)))
            }
            Stored::Writes(_) => mode == Mode::Write,
        }
    }

    /// The number of these holds that are live in a lock of this mode.
    pub fn live_count(&self, mode: Mode) -> u64 {
        match self {
            Stored::Reads(read_holds) => live_ends(read_holds).len() as u64,
            Stored::Writes(count) if mode == Mode::Write => *count,
            Stored::Writes(_) => 0,
        }
    }

    /// Whether the field needs repair: a read hold has lapsed, no read hold is live, or it counts
    /// write holds in a lock in read mode.
    pub fn is_stale(&self, mode: Mode) -> bool {
        match self {
            Stored::Reads(read_holds) => {
                read_holds.contains(&ReadHold::Lapsed) || live_ends(read_holds).is_empty()
            }
            Stored::Writes(_) => mode == Mode::Read,
        }
    }
}

/// What to do if an owner has more than `MAX_READS` read holds, or a command would read more than
/// `MAX_KEYS_READ` timeout keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// Return [`Error::TooManyReads`](super::Error::TooManyReads).
    Refuse,
    /// Leave out the holds beyond the limit.
    Ignore,
}

/// The lock to which a timeout key belongs.
pub(super) enum TimeoutOf {
    /// The key does not exist.
    Missing,
    /// This lock.
    ThisLock,
    /// The lock of this name.
    OtherLock(Vec<u8>),
}
