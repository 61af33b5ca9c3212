//! Locks that this node does not serve, because their slot is on another node or moves, or because
//! the cluster is down.

use super::intervals;
use super::state::Answer;
use super::{Engine, Error};
use crate::ffi::{Db, Str};
use crate::store::{self, LockRef, SlotOwner};

impl Engine {
    /// A lock's timer fired, but its keys cannot be read because of `error`. Its waiters get an
    /// error: a redirect, or a request to try again. The lock stays remembered while it may come
    /// back: the cluster is down, its slot is this node's, or its hash is here.
    pub(super) fn handle_unserved(&mut self, db: Db<'_>, key: &Str, error: store::Error) {
        let lock = LockRef { db: db.number(), name: key.bytes() };
        if self.memory.get(lock).is_none() {
            return;
        }
        let queue = self.queue_in_order(lock);
        let is_here = store::is_here(db, key);
        let owner = match &error {
            store::Error::ClusterDown(_) => SlotOwner::Myself,
            // Only waiters need the owner of the slot, for a redirect.
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
                // The server redirects the client when it tries again.
                SlotOwner::Myself | SlotOwner::Unknown => Error::Store(error.clone()),
            };
            self.answer(id, waiter, Answer::Failed(error));
        }
        let soon = self.within(db.ctx(), intervals::UNSERVED_LOCK);
        match owner {
            SlotOwner::Myself => self.schedule(lock, soon),
            SlotOwner::Unknown if is_here => self.schedule(lock, soon),
            _ => {
                self.memory.lose(lock);
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

/// The error that a server sends for a slot that no node serves.
const UNSERVED: &str = "CLUSTERDOWN Hash slot not served";
