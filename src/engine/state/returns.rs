//! Holds that the module is to return.

use super::clock::Moment;
use super::memory::LockId;
use super::tracked::TrackedId;
use std::collections::BTreeSet;

/// Holds that the module is to return.
#[derive(Default)]
pub struct Returns {
    /// Clients whose connections closed. The holds that are bound to them are ready to be returned.
    pub closed_clients: BTreeSet<u64>,
    /// Single holds that are ready to be returned.
    ready: Vec<TrackedId>,
    /// Holds whose return failed. They are tried again.
    failed: Vec<TrackedId>,
    /// When the failed returns are tried again.
    retry_at: Moment,
    /// Whether holds are being returned. No queue is served meanwhile: a hold that is still to be
    /// returned would let other waiters of its owner in.
    in_progress: bool,
    /// The locks whose queues were delayed meanwhile.
    delayed: Vec<LockId>,
}

impl Returns {
    /// Adds a hold that is ready to be returned.
    pub fn add(&mut self, id: TrackedId) {
        self.ready.push(id);
    }

    /// Whether a hold is ready to be returned.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.closed_clients.is_empty()
    }

    /// Whether a hold is to be returned, now or later.
    pub fn has_any(&self) -> bool {
        self.has_ready() || !self.failed.is_empty()
    }

    /// When the failed returns are tried again. None: there are none.
    pub fn retry_at(&self) -> Option<Moment> {
        (!self.failed.is_empty()).then_some(self.retry_at)
    }

    /// Makes the failed returns ready, if it is time.
    pub fn retry(&mut self, now: Moment) {
        if now > self.retry_at {
            self.ready.append(&mut self.failed);
        }
    }

    /// Whether the lock's queue must not be served now, because holds are being returned. The lock
    /// is then one of those that `end` returns.
    pub fn delay_queue(&mut self, lock: &LockId) -> bool {
        if self.in_progress && self.delayed.last() != Some(lock) {
            self.delayed.push(lock.clone());
        }
        self.in_progress
    }

    /// Begins to return holds: queues are delayed from now on.
    pub fn begin(&mut self) {
        self.in_progress = true;
    }

    /// Whether holds are being returned.
    pub fn is_in_progress(&self) -> bool {
        self.in_progress
    }

    /// Ends returning holds for now. Returns the locks whose queues were delayed.
    pub fn end(&mut self) -> Vec<LockId> {
        self.in_progress = false;
        std::mem::take(&mut self.delayed)
    }

    /// Takes a single hold that is ready to be returned.
    pub fn pop(&mut self) -> Option<TrackedId> {
        self.ready.pop()
    }

    /// Adds a hold whose return failed. The first such hold decides when all are tried again.
    pub fn add_failed(&mut self, id: TrackedId, retry_at: Moment) {
        if self.failed.is_empty() {
            self.retry_at = retry_at;
        }
        self.failed.push(id);
    }
}
