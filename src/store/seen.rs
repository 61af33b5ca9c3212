//! What a look at a lock found.

use super::holds::{Field, Stored};
use super::numbering::{free_numbers, number_after, rank_of, Slot, Slots};
use crate::core::{End, Lock, Mode};

/// What a look at a lock found: the truth, and what the keys say where that is
/// more or other than the truth.
pub struct Seen {
    /// The lock as it is.
    pub lock: Lock,
    /// The earliest end of any hold that the look met, the lock's included.
    pub earliest: End,
    /// How many live holds the look met.
    pub holds: u64,
    pub(super) hash: Option<Stale>,
    pub(super) own: OwnStored,
    /// Whether a single write hold of the owner is all that the hash tells of.
    pub(super) single: bool,
    /// Fields of others that are no longer true.
    pub(super) debris: Vec<Field>,
}

/// What the hash says of the whole lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    pub mode: Mode,
    pub end: End,
}

/// What the keys say of the owner's own holds.
#[derive(Default)]
pub(super) struct OwnStored {
    /// The read count; 0 without a field.
    pub reads: u64,
    pub slots: Slots,
    /// The write count; 0 without a field.
    pub writes: u64,
}

impl Seen {
    /// No hash.
    pub fn nothing() -> Seen {
        Seen {
            lock: Lock::free(),
            earliest: End::Never,
            holds: 0,
            hash: None,
            own: OwnStored::default(),
            single: false,
            debris: Vec::new(),
        }
    }

    /// Whether there is a hash, be it of a lock that nobody holds any more.
    pub fn has_hash(&self) -> bool {
        self.hash.is_some()
    }

    /// The owners whose lapsed read holds a commit removes, each with the number that a
    /// read hold of its of this number has then; None when it has lapsed.
    pub fn mended(&self) -> impl Iterator<Item = (&[u8], impl Fn(u64) -> Option<u64> + '_)> {
        self.debris.iter().filter_map(|field| match &field.stored {
            Stored::Reads(slots) => {
                Some((field.owner.as_slice(), move |number| number_after(slots, number)))
            }
            Stored::Writes(_) => None,
        })
    }

    /// Which of the owner's live read holds has this number, counted from 0.
    pub fn rank_of(&self, number: u64) -> Option<usize> {
        rank_of(&self.own.slots, number)
    }

    /// The numbers that this many read holds of the owner have after a commit.
    pub fn numbers(&self, holds: usize) -> impl Iterator<Item = u64> + '_ {
        free_numbers(&self.own.slots).take(holds)
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
        if self.own.slots.is_empty() && self.debris.is_empty() {
            return 0;
        }
        let of_others = self.debris.iter().map(|field| match &field.stored {
            Stored::Reads(slots) => lapsed(slots),
            Stored::Writes(_) => 0,
        });
        of_others.fold(lapsed(&self.own.slots), u64::saturating_add)
    }
}

fn lapsed(slots: &[Slot]) -> u64 {
    slots.iter().filter(|slot| **slot == Slot::Lapsed).count() as u64
}
