//! Holds that the module is to give back.

use super::clock::Moment;
use super::memory::LockId;
use super::tracked::TrackedId;
use std::collections::BTreeSet;

/// What is to be given back.
#[derive(Default)]
pub struct Returns {
    /// Connections that are gone, and what was bound to them with them.
    pub clients: BTreeSet<u64>,
    /// Single holds.
    holds: Vec<TrackedId>,
    /// Those that could not be given back when it was tried.
    refused: Vec<TrackedId>,
    /// When these are tried again.
    retry_at: Moment,
    /// Whether holds are being given back. No queue is served meanwhile: a hold that is
    /// still to be given back would let its owner's waiters in.
    is_under_way: bool,
    /// The locks whose queues are served after that.
    freed: Vec<LockId>,
}

impl Returns {
    /// Adds a hold.
    pub fn add(&mut self, id: TrackedId) {
        self.holds.push(id);
    }

    /// Whether anything is to be given back now.
    pub fn has_some(&self) -> bool {
        !self.holds.is_empty() || !self.clients.is_empty()
    }

    /// Whether anything is to be given back, now or later.
    pub fn has_any(&self) -> bool {
        self.has_some() || !self.refused.is_empty()
    }

    /// When to try again what could not be given back.
    pub fn retry_at(&self) -> Option<Moment> {
        (!self.refused.is_empty()).then_some(self.retry_at)
    }

    /// Moves what could not be given back to what is to be, when it is time.
    pub fn retry(&mut self, now: Moment) {
        if now > self.retry_at {
            self.holds.append(&mut self.refused);
        }
    }

    /// Whether a lock's queue has to wait until all is given back. It is served then.
    pub fn delay(&mut self, lock: &LockId) -> bool {
        if self.is_under_way && self.freed.last() != Some(lock) {
            self.freed.push(lock.clone());
        }
        self.is_under_way
    }

    /// Holds are being given back: queues are delayed from now on.
    pub fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// No more of them are, for now. The locks whose queues were delayed.
    pub fn end(&mut self) -> Vec<LockId> {
        self.is_under_way = false;
        std::mem::take(&mut self.freed)
    }

    /// Takes a hold that is to be given back.
    pub fn pop(&mut self) -> Option<TrackedId> {
        self.holds.pop()
    }

    /// A hold could not be given back; it is tried again, the first of them then.
    pub fn refuse(&mut self, id: TrackedId, retry_at: Moment) {
        if self.refused.is_empty() {
            self.retry_at = retry_at;
        }
        self.refused.push(id);
    }
}
