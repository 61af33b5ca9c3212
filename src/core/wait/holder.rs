//! What is known of who holds the locks that have waiters, without reading a key.

use super::OwnerId;
use crate::core::give_room_back;
use hashbrown::HashMap;
use std::hash::Hash;

/// Who may hold a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// Any owners: the lock has to be read.
    #[default]
    Anybody,
    /// Nobody holds it.
    Nobody,
    /// This owner writes, and nobody else holds it.
    Only(OwnerId),
}

/// The locks with waiters, by who may hold them.
#[derive(Debug)]
pub(super) struct HeldBy<L> {
    /// How many of the locks each owner may hold, while nobody else may hold them.
    only: HashMap<OwnerId, usize>,
    /// The locks that any owners may hold.
    anybody: HashMap<L, ()>,
}

impl<L> Default for HeldBy<L> {
    fn default() -> HeldBy<L> {
        HeldBy { only: HashMap::default(), anybody: HashMap::default() }
    }
}

impl<L: Clone + Eq + Hash> HeldBy<L> {
    /// Adds a lock.
    pub fn add(&mut self, lock: &L, holder: &Holder) {
        match holder {
            Holder::Anybody => _ = self.anybody.insert(lock.clone(), ()),
            Holder::Nobody => {}
            Holder::Only(owner) => *self.only.entry_ref(owner).or_insert(0) += 1,
        }
    }

    /// Removes a lock that was added with this holder.
    pub fn remove(&mut self, lock: &L, holder: &Holder) {
        match holder {
            Holder::Anybody => {
                self.anybody.remove(lock);
                give_room_back(&mut self.anybody);
            }
            Holder::Nobody => {}
            Holder::Only(owner) => {
                if let Some(count) = self.only.get_mut(owner) {
                    *count -= 1;
                    if *count == 0 {
                        self.only.remove(owner);
                        give_room_back(&mut self.only);
                    }
                }
            }
        }
    }

    /// Whether the owner may hold one of the locks. `holds`: tells it for a lock that has to be
    /// read.
    pub fn may_hold(&self, owner: &OwnerId, holds: impl FnMut(&L) -> bool) -> bool {
        self.only.contains_key(owner) || self.anybody.keys().any(holds)
    }
}
