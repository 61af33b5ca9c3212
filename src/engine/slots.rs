//! A lock that this node does not serve: its slot is another node's, or on its way, or the
//! cluster is down.

use super::intervals;
use super::state::Answer;
use super::{Engine, Error};
use crate::ffi::{Db, Str};
use crate::store::{self, LockRef, SlotOwner};

impl Engine {
    /// The lock's alarm rang, and its keys cannot be looked at for this reason. Those who
    /// wait are told where to go, or to come again. The lock is remembered while it may come
    /// back: while the cluster is down, its slot is this node's or its hash is here.
    pub(super) fn not_served(&mut self, db: Db<'_>, key: &Str, error: store::Error) {
        let lock = LockRef { db: db.number(), name: key.bytes() };
        if self.memory.get(lock).is_none() {
            return;
        }
        let queue = self.queue_in_order(lock);
        let is_here = store::is_here(db, key);
        let owner = match &error {
            store::Error::ClusterDown(_) => SlotOwner::Myself,
            // Nobody asks whose it is.
            _ if queue.is_empty() && is_here => SlotOwner::Unknown,
            _ => store::slot_owner(db.ctx(), lock.name),
        };
        for (id, ..) in queue {
            let Some(waiter) = self.waits.remove(id) else {
                continue;
            };
            let error = match &owner {
                SlotOwner::Other(redirect) => {
                    let is_tls = db.ctx().is_tls(waiter.request.client);
                    Error::Elsewhere(redirect.error(is_tls))
                }
                SlotOwner::Nobody => Error::Elsewhere(UNSERVED.into()),
                // Who comes again is told by the server itself.
                SlotOwner::Myself | SlotOwner::Unknown => Error::Store(error.clone()),
            };
            self.answer(id, waiter, Answer::Failed(error));
        }
        let soon = self.within(db.ctx(), intervals::UNSERVED_LOCK);
        match owner {
            SlotOwner::Myself => self.schedule(lock, soon),
            SlotOwner::Unknown if is_here => self.schedule(lock, soon),
            _ => {
                if let Some(known) = self.memory.get_mut(lock) {
                    known.mode = None;
                }
                if !is_here || matches!(owner, SlotOwner::Other(_)) {
                    self.untrack_lock(lock);
                }
                self.forget_if_idle(lock);
                if is_here {
                    self.unserved.add(lock.into());
                }
            }
        }
    }
}

/// What a server says of a slot that no node serves.
const UNSERVED: &str = "CLUSTERDOWN Hash slot not served";
