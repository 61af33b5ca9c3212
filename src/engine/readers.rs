//! The ends of a lock's readers, remembered for locks with many of them.
//!
//! A lock with few holders is read as a whole whenever that is needed. With thousands of readers
//! that would make each UNLOCK slower the more readers there are. So the engine remembers their
//! ends. The ends are a hint: the engine compares them with the keys before it relies on them, and
//! forgets them if they differ from the keys or after an external change.

use super::state::Readers;
use super::Engine;
use crate::core::{End, Ends, Mode};
use crate::store::{Error, Owner, ReadScope, Snapshot, Store};

/// Ends are remembered for a hash with at least this many fields.
const MANY_FIELDS: usize = 8;

impl Engine {
    /// Takes a snapshot of the lock as `owner` sees it. Reads fewer keys if the ends of the readers
    /// are remembered.
    pub(super) fn snapshot(
        &mut self,
        store: &Store<'_>,
        owner: &Owner<'_>,
        scope: ReadScope,
    ) -> Result<Snapshot, Error> {
        let Some(hash) = store.found_hash()? else {
            return Ok(Snapshot::nothing());
        };
        if hash.fields < MANY_FIELDS {
            return store.snapshot_of(hash, owner, scope, None);
        }
        let known = self.memory.get(store.lock());
        if known.is_some_and(|known| known.readers.is_none()) {
            self.remember_readers(store);
        }
        match self.latest_reader(store, owner)? {
            None => store.snapshot_of(hash, owner, scope, None),
            latest => store.snapshot_of(hash, owner, ReadScope::Mode, latest),
        }
    }

    /// The latest end of the other readers, if it is remembered and the keys confirm it.
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
            // There is no other reader, or the keys differ: read the keys instead.
            _ => {
                known.readers = None;
                Ok(None)
            }
        }
    }

    /// Remembers the current read holds of one owner.
    pub(super) fn remember_reader(&mut self, store: &Store<'_>, owner: &[u8], ends: &Ends) {
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return;
        };
        if store.field_count() < MANY_FIELDS {
            known.readers = None;
        } else if let Some(readers) = &mut known.readers {
            readers.set(owner, ends);
        }
    }

    /// Remembers the ends of all readers, if the lock has many.
    pub(super) fn remember_readers(&mut self, store: &Store<'_>) {
        if store.field_count() < MANY_FIELDS {
            return;
        }
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return;
        };
        if known.mode() != Some(Mode::Read) {
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
