//! Snapshots of a lock.

use super::holds::{Field, Stored};
use super::numbering::{free_numbers, number_after, rank_of, ReadHold, ReadHolds};
use crate::core::{End, Lock, Mode};

/// A snapshot of a lock: its live holds as one owner sees them, and the stored fields that differ
/// from them and need repair.
pub struct Snapshot {
    /// The lock with its live holds only.
    pub lock: Lock,
    /// The earliest end of the lock and of the live holds that were read.
    pub earliest: End,
    /// The number of live holds that were read.
    pub holds: u64,
    pub(super) hash: Option<StoredHash>,
    pub(super) own: StoredHolds,
    /// Whether the hash counts one write hold of the owner and no other holds.
    pub(super) is_single_write: bool,
    /// Fields of other owners that were read and need repair.
    pub(super) stale_fields: Vec<Field>,
}

/// The mode and the end in the hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredHash {
    pub mode: Mode,
    pub end: End,
}

/// The owner's own holds as the keys store them.
#[derive(Default)]
pub(super) struct StoredHolds {
    /// The read count in the hash; 0: there is no such field.
    pub reads: u64,
    /// The read holds, live or not.
    pub read_holds: ReadHolds,
    /// The write count in the hash; 0: there is no such field.
    pub writes: u64,
}

impl Snapshot {
    /// The snapshot of a lock without a hash.
    pub fn nothing() -> Snapshot {
        Snapshot {
            lock: Lock::free(),
            earliest: End::Never,
            holds: 0,
            hash: None,
            own: StoredHolds::default(),
            is_single_write: false,
            stale_fields: Vec::new(),
        }
    }

    /// Whether there is a hash, also if all its holds have lapsed.
    pub fn has_hash(&self) -> bool {
        self.hash.is_some()
    }

    /// The other owners whose lapsed read holds a commit removes. Each comes with a function that
    /// returns the number after the commit of the read hold with this number now; None: that hold
    /// has lapsed.
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

    /// The other owners whose read holds have lapsed.
    pub fn lapsed_readers(&self) -> impl Iterator<Item = &[u8]> {
        self.stale_fields.iter().filter_map(|field| match &field.stored {
            Stored::Reads(read_holds) if lapsed(read_holds) > 0 => Some(field.owner.as_slice()),
            Stored::Reads(_) | Stored::Writes(_) => None,
        })
    }

    /// Whether a read hold of the owner has lapsed.
    pub fn has_own_lapsed(&self) -> bool {
        lapsed(&self.own.read_holds) > 0
    }

    /// The position among the owner's live read holds, from 0, of the one with this number; None:
    /// no live hold has it.
    pub fn rank_of(&self, number: u64) -> Option<usize> {
        rank_of(&self.own.read_holds, number)
    }

    /// The numbers that the read holds of the owner have after a commit of this many.
    pub fn numbers(&self, holds: usize) -> impl Iterator<Item = u64> + '_ {
        free_numbers(&self.own.read_holds).take(holds)
    }

    /// Whether the hash still counts a hold that has lapsed.
    pub fn has_lapsed(&self) -> bool {
        self.has_outlived() || self.lapsed() > 0
    }

    /// Whether there is a hash, but all its holds have lapsed.
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
