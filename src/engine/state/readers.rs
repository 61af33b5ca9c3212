//! The ends of a lock's readers, in their order.

use crate::core::{End, Ends, OwnerId};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// The ends of the read holds of all owners.
#[derive(Debug, Default)]
pub struct Readers {
    of_owner: HashMap<OwnerId, Ends>,
    by_end: BTreeSet<(End, OwnerId, usize)>,
}

impl Readers {
    /// Replaces the read holds of an owner. An empty list removes the owner.
    pub fn set(&mut self, owner: &[u8], ends: &Ends) {
        let id: OwnerId = match self.of_owner.remove_entry(owner) {
            Some((id, old)) => {
                for (rank, end) in old.into_iter().enumerate() {
                    self.by_end.remove(&(end, id.clone(), rank));
                }
                id
            }
            None => owner.into(),
        };
        if !ends.is_empty() {
            for (rank, end) in ends.iter().enumerate() {
                self.by_end.insert((*end, id.clone(), rank));
            }
            self.of_owner.insert(id, ends.clone());
        }
    }

    /// The latest end among the other owners, with its owner.
    pub fn latest_of_others(&self, own: &[u8]) -> Option<(End, &OwnerId)> {
        let mut others = self.by_end.iter().rev().filter(|(_, owner, _)| **owner != *own);
        others.next().map(|(end, owner, _)| (*end, owner))
    }

    /// The owner of the hold that ends last.
    pub fn last_owner(&self) -> Option<&OwnerId> {
        self.by_end.last().map(|(_, owner, _)| owner)
    }

    /// The owners, in any order.
    pub fn owners(&self) -> impl Iterator<Item = &OwnerId> {
        self.of_owner.keys()
    }

    /// The earliest end. Never, without readers.
    pub fn earliest(&self) -> End {
        self.by_end.first().map_or(End::Never, |(end, ..)| *end)
    }

    /// The owner of the hold that ends first, if `is_past` is true for that end.
    pub fn lapsed(&self, is_past: impl Fn(End) -> bool) -> Option<OwnerId> {
        self.by_end.first().filter(|(end, ..)| is_past(*end)).map(|(_, owner, _)| owner.clone())
    }
}
