//! A lock as one owner sees it.

use super::{End, Millis};
use smallvec::SmallVec;

/// The mode of a lock that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Held by readers only.
    Read,
    /// Held by one writer, which may have read holds as well.
    Write,
}

/// The kind of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read hold, which is shared.
    Read,
    /// A write hold, which is exclusive.
    Write,
}

/// Ends of holds. Most owners have at most two, which are stored inline.
pub type Ends = SmallVec<[End; 2]>;

/// The live holds of one owner on one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The ends of the read holds, lowest number first.
    pub reads: Ends,
    /// The number of write holds. They share one lease: [`Lock::end`].
    pub writes: u64,
}

impl Holds {
    /// The number of holds of both kinds.
    pub fn count(&self) -> u64 {
        self.writes.saturating_add(self.reads.len() as u64)
    }

    /// Whether there is no hold of either kind.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes == 0
    }
}

/// The live holds of other owners on the lock, as far as the read scope asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// No other owner holds it; or the read scope asks for the mode only, which the owner's
    /// own holds tell already.
    None,
    /// Other owners read, and no other owner writes.
    Readers {
        /// The latest end of their holds; None: the read scope does not ask for it.
        latest: Option<End>,
    },
    /// Another owner writes.
    Writer,
}

/// A snapshot: a lock as one owner sees it. Lapsed holds are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The holds of the requesting owner.
    pub own: Holds,
    /// The holds of other owners.
    pub others: Others,
    /// When the hash expires; in write mode this is the end of the write lease. It has no
    /// meaning for a free lock.
    pub end: End,
}

impl Lock {
    /// A free lock.
    pub fn free() -> Lock {
        Lock { own: Holds::default(), others: Others::None, end: End::Never }
    }

    /// The mode that follows from the holds; None: the lock is free.
    pub fn mode(&self) -> Option<Mode> {
        if self.own.writes > 0 || self.others == Others::Writer {
            Some(Mode::Write)
        } else if !self.own.reads.is_empty() || self.others != Others::None {
            Some(Mode::Read)
        } else {
            None
        }
    }

    /// Whether there is no hold.
    pub fn is_free(&self) -> bool {
        self.mode().is_none()
    }

    /// When the hash has to expire once only read holds remain: at the latest of their ends.
    /// A hash without expiry stays without (`docs/keys.md`). If the snapshot lacks the ends of
    /// other readers, the hash keeps its end, which is never before theirs.
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
