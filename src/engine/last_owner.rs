//! The last-expiring owner of a lock. When a lock lapses, its keys are gone. The announcement,
//! where it names owners, names this owner.

use super::Engine;
use crate::core::{End, Lock, Mode, OwnerId};
use crate::store::Store;

impl Engine {
    /// The remembered last-expiring owner. None where announcements name no owners.
    pub(super) fn last_owner(&self, store: &Store<'_>) -> Option<OwnerId> {
        if !self.settings.events.names_owners() {
            return None;
        }
        self.memory.get(store.lock())?.last_owner().cloned()
    }

    /// Updates the last-expiring owner after a commit. `lock` is the new lock as `owner` sees it.
    pub(super) fn remember_last_owner(&mut self, store: &Store<'_>, owner: &[u8], lock: &Lock) {
        if !self.settings.events.names_owners() {
            return;
        }
        let Some(known) = self.memory.get_mut(store.lock()) else {
            return;
        };
        let is_last = match lock.mode() {
            None => {
                known.set_last_owner(None);
                return;
            }
            Some(Mode::Write) => lock.own.writes > 0,
            Some(Mode::Read) => lock.own.reads.iter().max() >= Some(&lock.end),
        };
        if is_last {
            if known.last_owner().map(OwnerId::as_ref) != Some(owner) {
                known.set_last_owner(Some(owner.into()));
            }
        } else if owner.is_empty() || known.last_owner().is_none_or(|last| **last == *owner) {
            // No owner is remembered, or `owner` was the last-expiring one and is not any more.
            let readers = known.readers.as_ref().and_then(|readers| readers.last_owner());
            known.set_last_owner(readers.cloned().or_else(|| find_last_owner(store, lock)));
        }
    }
}

fn find_last_owner(store: &Store<'_>, lock: &Lock) -> Option<OwnerId> {
    if lock.mode() == Some(Mode::Write) {
        return store.writer().ok()?.map(OwnerId::from);
    }
    let latest = |ends: &[End]| ends.iter().copied().max();
    let all = store.all_read_ends().ok()?.into_iter();
    let all = all.filter_map(|(owner, ends)| Some((latest(&ends)?, owner)));
    all.max().map(|(_, owner)| owner.into())
}
