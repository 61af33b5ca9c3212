//! The read holds of a lock that has many, in the order in which they end.
//!
//! A lock with a few holders is looked at as a whole whenever that matters. One
//! with thousands would make each UNLOCK as slow as all of them are many; for
//! such a lock the ends are remembered. They are a hint: what they say is held
//! against the keys before it is relied on, and forgotten when it differs or
//! when somebody else has changed the keys.

use super::state::Readers;
use super::Engine;
use crate::core::{End, Ends, Mode};
use crate::store::{Error, Owner, ReadScope, Snapshot, Store};

/// From how many fields of the hash on ends are remembered.
const MANY: usize = 8;

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
            fields if fields < MANY => return store.snapshot(owner, scope),
            _ => {}
        }
        let known = self.memory.get(store.lock());
        if known.is_some_and(|known| known.readers.is_none()) {
            self.remember_readers(store);
        }
        match self.latest_reader(store, owner)? {
            Some(latest) => store.snapshot_beside(owner, latest),
            None => store.snapshot(owner, scope),
        }
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
