//! What a look at a lock found.

use super::holds::{Field, Stored};
use super::numbering::{free_numbers, number_after, rank_of, ReadHold, ReadHolds};
use crate::core::{End, Lock, Mode};

/// What a look at a lock found: the truth, and what the keys say where that is
/// more or other than the truth.
pub struct Snapshot {
    /// The lock as it is.
    pub lock: Lock,
    /// The earliest end of any hold that the look met, the lock's included.
    pub earliest: End,
    /// How many live holds the look met.
    pub holds: u64,
    pub(super) hash: Option<StoredHash>,
    pub(super) own: StoredHolds,
    /// Whether a single write hold of the owner is all that the hash tells of.
    pub(super) single: bool,
    /// Fields of others that are no longer true.
    pub(super) stale_fields: Vec<Field>,
}

/// What the hash says of the whole lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredHash {
    pub mode: Mode,
    pub end: End,
}

/// What the keys say of the owner's own holds.
#[derive(Default)]
pub(super) struct StoredHolds {
    /// The read count; 0 without a field.
    pub reads: u64,
    pub read_holds: ReadHolds,
    /// The write count; 0 without a field.
    pub writes: u64,
}

impl Snapshot {
    /// No hash.
    pub fn nothing() -> Snapshot {
        Snapshot {
            lock: Lock::free(),
            earliest: End::Never,
            holds: 0,
            hash: None,
            own: StoredHolds::default(),
            single: false,
            stale_fields: Vec::new(),
        }
    }

    /// Whether there is a hash, be it of a lock that nobody holds any more.
    pub fn has_hash(&self) -> bool {
        self.hash.is_some()
    }

    /// The owners whose lapsed read holds a commit removes, each with the number that a
    /// read hold of its of this number has then; None when it has lapsed.
    pub fn repaired_readers(
        &self,
    ) -> impl Iterator<Item = (&[u8], impl Fn(u64) -> Option<u64> + '_)> {
        self.stale_fields.iter().filter_map(|field| match &field.stored {
            Stored::Reads(read_holds) => {
                Some((field.owner.as_slice(), move |number| number_after(read_holds, number)))
            }
            Stored::Writes(_) => None,
        })
    }

    /// Which of the owner's live read holds has this number, counted from 0.
    pub fn rank_of(&self, number: u64) -> Option<usize> {
        rank_of(&self.own.read_holds, number)
    }

    /// The numbers that this many read holds of the owner have after a commit.
    pub fn numbers(&self, holds: usize) -> impl Iterator<Item = u64> + '_ {
        free_numbers(&self.own.read_holds).take(holds)
    }

    /// Whether a hold has lapsed that the keys still tell of.
    pub fn has_lapsed(&self) -> bool {
        self.has_outlived() || self.lapsed() > 0
    }

    /// Whether there is a hash though nobody holds the lock.
    pub fn has_outlived(&self) -> bool {
        self.has_hash() && self.lock.is_free()
    }

    /// How many lapsed holds a commit removes.
    pub fn lapsed(&self) -> u64 {
        if self.own.read_holds.is_empty() && self.stale_fields.is_empty() {
            return 0;
        }
        let of_others = self.stale_fields.iter().map(|field| match &field.stored {
            Stored::Reads(read_holds) => lapsed(read_holds),
            Stored::Writes(_) => 0,
        });
        of_others.fold(lapsed(&self.own.read_holds), u64::saturating_add)
    }
}

fn lapsed(read_holds: &[ReadHold]) -> u64 {
    read_holds.iter().filter(|read_hold| **read_hold == ReadHold::Lapsed).count() as u64
}
