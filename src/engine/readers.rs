//! The read holds of a lock that has many, in the order in which they end.
//!
//! A lock with a few holders is looked at as a whole whenever that matters. One
//! with thousands would make each UNLOCK as slow as all of them are many; for
//! such a lock the ends are remembered. They are a hint: what they say is held
//! against the keys before it is relied on, and forgotten when it differs or
//! when somebody else has changed the keys.

use super::Engine;
use crate::core::{End, Ends, Mode, Others, OwnerId};
use crate::store::{Beside, Error, Owner, ReadScope, Snapshot, Store};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// From how many fields of the hash on ends are remembered.
const MANY: usize = 8;

/// The ends of the read holds of all owners.
#[derive(Debug, Default)]
pub struct Readers {
    of_owner: HashMap<OwnerId, Ends>,
    by_end: BTreeSet<(End, OwnerId, usize)>,
}

impl Readers {
    /// What an owner holds now.
    fn set(&mut self, owner: &[u8], ends: &Ends) {
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

    /// The hold of another owner that ends last.
    fn latest_of_others(&self, own: &[u8]) -> Option<(End, &OwnerId)> {
        let mut others = self.by_end.iter().rev().filter(|(_, owner, _)| **owner != *own);
        others.next().map(|(end, owner, _)| (*end, owner))
    }

    /// The owner of the hold that ends last.
    pub fn last_owner(&self) -> Option<&OwnerId> {
        self.by_end.last().map(|(_, owner, _)| owner)
    }

    /// The end of the first.
    pub fn earliest(&self) -> End {
        self.by_end.first().map_or(End::Never, |(end, ..)| *end)
    }

    /// An owner whose hold has lapsed.
    pub fn lapsed(&self, is_past: impl Fn(End) -> bool) -> Option<OwnerId> {
        self.by_end.first().filter(|(end, ..)| is_past(*end)).map(|(_, owner, _)| owner.clone())
    }
}

impl Engine {
    /// Looks at the lock as an owner sees it.
    pub(super) fn snapshot(
        &mut self,
        store: &Store<'_>,
        owner: &Owner<'_>,
        scope: ReadScope,
    ) -> Result<Snapshot, Error> {
        match store.field_count() {
            0 if !store.exists() => return Ok(Snapshot::nothing()),
            fields if fields < MANY && self.waits.is_empty() => {
                return store.snapshot(owner, scope);
            }
            fields if fields < MANY => return self.snapshot_of_few(store, owner, scope),
            _ => {}
        }
        let known = self.memory.get(store.lock());
        if known.is_some_and(|known| known.readers.is_none()) {
            self.remember_readers(store);
        }
        match self.latest_reader(store, owner)? {
            Some(latest) => store.snapshot_beside(owner, Beside::Readers(latest)),
            None => store.snapshot(owner, scope),
        }
    }

    /// Looks at a lock with few holders. While somebody waits for it it is
    /// remembered who writes.
    #[inline(never)]
    fn snapshot_of_few(
        &mut self,
        store: &Store<'_>,
        owner: &Owner<'_>,
        scope: ReadScope,
    ) -> Result<Snapshot, Error> {
        let queue = self.waits.queue_mut(&store.lock());
        let Some(queue) = queue.filter(|_| scope == ReadScope::Mode) else {
            return store.snapshot(owner, scope);
        };
        let Some(writer) = queue.writer.as_ref().filter(|writer| ***writer != *owner.bytes())
        else {
            return store.snapshot(owner, scope);
        };
        let snapshot = store.snapshot_beside(owner, Beside::Writer(writer))?;
        if snapshot.lock.others != Others::Writer {
            queue.writer = None;
        }
        Ok(snapshot)
    }

    /// When the last of the others ends, if that is remembered and true.
    fn latest_reader(
        &mut self,
        store: &Store<'_>,
        owner: &Owner<'_>,
    ) -> Result<Option<End>, Error> {
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return Ok(None);
        };
        let Some(readers) = &known.readers else {
            return Ok(None);
        };
        match readers.latest_of_others(owner.bytes()) {
            Some((end, other)) if store.read_ends(other)?.iter().max() == Some(&end) => {
                Ok(Some(end))
            }
            // Nobody else, or not as remembered: look at the keys.
            _ => {
                known.readers = None;
                Ok(None)
            }
        }
    }

    /// Remembers what an owner holds now.
    pub(super) fn remember_reader(&mut self, store: &Store<'_>, owner: &[u8], ends: &Ends) {
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return;
        };
        if store.field_count() < MANY {
            known.readers = None;
        } else if let Some(readers) = &mut known.readers {
            readers.set(owner, ends);
        }
    }

    /// Remembers all readers of a lock that has many.
    pub(super) fn remember_readers(&mut self, store: &Store<'_>) {
        if store.field_count() < MANY {
            return;
        }
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return;
        };
        if known.mode != Some(Mode::Read) {
            return;
        }
        if let Ok(all) = store.all_read_ends() {
            let mut readers = Readers::default();
            for (owner, ends) in all {
                readers.set(&owner, &ends);
            }
            known.readers = Some(Box::new(readers));
        }
    }
}
