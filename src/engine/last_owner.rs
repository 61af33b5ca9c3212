//! The last-expiring owner of a lock. When a lock lapses, its keys are gone. The log names this
//! owner, and so does the announcement where it names owners.
//!
//! For the log a lock is read just before it ends: so the owner is remembered only for the few
//! locks that lapse.

use super::intervals::BEFORE_LAPSE;
use super::Engine;
use crate::core::{End, Lock, Millis, Mode, OwnerId};
use crate::store::Store;

impl Engine {
    /// The remembered last-expiring owner. None where announcements name no owners.
    pub(super) fn last_owner(&self, store: &Store<'_>) -> Option<OwnerId> {
        if !self.settings.events.names_owners() {
            return None;
        }
        self.memory.get(store.lock())?.last_owner().cloned()
    }

    /// Whether a lock with this end has just been read because it will lapse soon.
    fn is_read_for_log(&self, store: &Store<'_>, end: End) -> bool {
        match end {
            End::At(at) => self.logs() && at <= store.now() + BEFORE_LAPSE,
            End::Never => false,
        }
    }

    /// When a lock is to be refreshed, one of whose holds ends at `end`: then, or just before, so
    /// that the log can name the owner.
    pub(super) fn before_lapse(&self, store: &Store<'_>, end: Millis) -> Millis {
        let before = end - BEFORE_LAPSE;
        if self.logs() && before > store.now() {
            before
        } else {
            end
        }
    }

    /// Updates the last-expiring owner after a commit. `lock` is the new lock as `owner` sees it.
    pub(super) fn remember_last_owner(&mut self, store: &Store<'_>, owner: &[u8], lock: &Lock) {
        if !self.settings.events.names_owners() && !self.is_read_for_log(store, lock.end) {
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
