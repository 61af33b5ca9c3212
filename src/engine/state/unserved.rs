//! The locks that this node could not read when it found them.

use super::clock::Moment;
use super::memory::LockId;
use crate::engine::intervals;
use hashbrown::HashSet;
use std::collections::VecDeque;

/// Locks to read again until this node serves them or their keys are gone.
#[derive(Default)]
pub struct Unserved {
    /// The locks in the order of the tries.
    queue: VecDeque<LockId>,
    members: HashSet<LockId>,
    /// How many locks from the front belong to the present round.
    this_round: usize,
    /// When the next try is due.
    due: Moment,
}

impl Unserved {
    /// Adds a lock at the front, due at once.
    pub fn add(&mut self, lock: LockId) {
        if self.members.insert(lock.clone()) {
            self.queue.push_front(lock);
            self.this_round += 1;
            self.due = Moment::PAST;
        }
    }

    /// When the next try is due. None: there are no locks.
    pub fn next(&self) -> Option<Moment> {
        (!self.queue.is_empty()).then_some(self.due)
    }

    /// Takes the next lock, if a try is due. After that call [`Unserved::retry`] or
    /// [`Unserved::remove`].
    pub fn take(&mut self, now: Moment) -> Option<LockId> {
        if now <= self.due {
            return None;
        }
        if self.this_round == 0 {
            self.this_round = self.queue.len();
        }
        let next = self.queue.pop_front()?;
        self.this_round -= 1;
        if self.this_round == 0 {
            self.due = now.after(intervals::UNSERVED_ROUND);
        }
        Some(next)
    }

    /// Puts a lock that still cannot be read at the end, for the next round.
    pub fn retry(&mut self, lock: LockId) {
        self.queue.push_back(lock);
    }

    /// Removes a lock that was taken. With the last one, the memory is freed.
    pub fn remove(&mut self, lock: &LockId) {
        self.members.remove(lock);
        if self.members.is_empty() {
            *self = Unserved::default();
        }
    }

    /// Delays the rest of the round, because the pass is over.
    pub fn pause(&mut self, until: Moment) {
        if self.this_round > 0 {
            self.due = until;
        }
    }
}
