//! The layout of names in plain bytes, for the fuzzer.

use super::names::{check_owner, field_name, write_field, FieldName, Name};
use super::{slot, LockName};

pub use super::glob::matches;
pub use super::names::{hold_of_key, locks_of_key};

/// The names that are made from the name of a lock, and those from an owner's as well.
pub struct Layout<'a>(LockName<'a>);

impl<'a> Layout<'a> {
    /// None: the name of the lock is refused. `cluster`: as in [`LockName::new`].
    pub fn of(lock: &'a [u8], cluster: bool) -> Option<Layout<'a>> {
        LockName::new(lock, cluster).ok().map(Layout)
    }

    pub fn timeout(&self, owner: &[u8], number: u64) -> Vec<u8> {
        whole(self.0.timeout(owner, number))
    }

    pub fn reservation(&self) -> Vec<u8> {
        whole(self.0.reservation())
    }

    pub fn fence(&self) -> Vec<u8> {
        whole(self.0.fence())
    }

    pub fn probe(&self, number: u64) -> Vec<u8> {
        whole(self.0.probe(number))
    }

    pub fn channel(&self) -> Vec<u8> {
        whole(self.0.channel())
    }

    pub fn owner_channel(&self) -> Vec<u8> {
        whole(self.0.owner_channel())
    }
}

/// Whether an owner may have this name.
pub fn is_owner(name: &[u8]) -> bool {
    check_owner(name).is_ok()
}

/// The fields that count an owner's read holds and its write holds.
pub fn fields(owner: &[u8]) -> [Vec<u8>; 2] {
    [owner.to_vec(), whole(write_field(owner))]
}

/// The owner of a field, and whether it counts write holds; None: the field is the mode.
pub fn owner_of_field(field: &[u8]) -> Option<(&[u8], bool)> {
    match field_name(field) {
        FieldName::Mode => None,
        FieldName::Reads(owner) => Some((owner, false)),
        FieldName::Writes(owner) => Some((owner, true)),
    }
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u16 {
    slot::slot(key)
}

fn whole(name: Name<'_>) -> Vec<u8> {
    let mut whole = Vec::new();
    name.append_to(&mut whole);
    whole
}
