//! What a lock looks like to one owner.

use super::{End, Millis};
use smallvec::SmallVec;

/// The mode of a lock that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Held by readers only.
    Read,
    /// Held by a writer, who may read as well.
    Write,
}

/// The kind of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

/// Ends of holds. Most owners have one or two.
pub type Ends = SmallVec<[End; 2]>;

/// The live holds of one owner on one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The ends of the read holds, lowest number first.
    pub reads: Ends,
    /// How many write holds. They share one lease: that of the lock.
    pub writes: u64,
}

impl Holds {
    /// How many of both kinds.
    pub fn count(&self) -> u64 {
        self.writes.saturating_add(self.reads.len() as u64)
    }

    /// Whether there is none of either kind.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes == 0
    }
}

/// The live holds of everybody else on the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nobody else holds it.
    None,
    /// Somebody else reads; nobody else writes.
    Readers {
        /// The latest end of their holds, where somebody looked at them all.
        latest: Option<End>,
    },
    /// Somebody else writes.
    Writer,
}

/// A lock as one owner sees it. Lapsed holds are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The holds of the owner who asks.
    pub own: Holds,
    /// The holds of the others.
    pub others: Others,
    /// The end of the hash, which is the lease of a write hold. Without
    /// meaning for a free lock.
    pub end: End,
}

impl Lock {
    /// A lock that nobody holds.
    pub fn free() -> Lock {
        Lock { own: Holds::default(), others: Others::None, end: End::Never }
    }

    /// The mode that its holds make; None when it is free.
    pub fn mode(&self) -> Option<Mode> {
        if self.own.writes > 0 || self.others == Others::Writer {
            Some(Mode::Write)
        } else if !self.own.reads.is_empty() || self.others != Others::None {
            Some(Mode::Read)
        } else {
            None
        }
    }

    /// Whether nobody holds it.
    pub fn is_free(&self) -> bool {
        self.mode().is_none()
    }

    /// The end that the hash shall have once only readers are left: the latest
    /// of theirs. A hash without expiry keeps none (`docs/keys.md`), and where
    /// nobody looked at the other readers the end stays what it is, for it must
    /// never fall below theirs.
    pub(super) fn latest_read(&self) -> End {
        let others = match self.others {
            Others::Readers { latest } => latest.unwrap_or(self.end),
            Others::None | Others::Writer => End::At(Millis::MIN),
        };
        match self.end {
            End::Never => End::Never,
            End::At(_) => self.own.reads.iter().copied().fold(others, End::max),
        }
    }

    /// Makes the lock last at least as long as its readers.
    pub fn lengthen_to_readers(&mut self) {
        let latest = self.latest_read();
        self.lengthen(latest);
    }

    /// Makes the lock last at least until `end`.
    pub fn lengthen(&mut self, end: End) {
        self.end = self.end.max(end);
    }
}
