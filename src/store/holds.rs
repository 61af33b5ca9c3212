//! What the hash and the timeout keys say of holds.

use super::numbering::{live_ends, ReadHold, ReadHolds};
use crate::core::{Ends, Mode};

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

/// What to do about a read count beyond `MAX_READS`, and about all of them
/// together beyond `MAX_KEYS_READ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// It is an error.
    Refuse,
    /// Look no further than that.
    Ignore,
}

/// Whose a timeout key is.
pub(super) enum Whose {
    Nobody,
    Ours,
    Other(Vec<u8>),
}
