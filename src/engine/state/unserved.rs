//! The locks that this node could not read when it met them.

use super::clock::Moment;
use super::memory::LockId;
use crate::engine::intervals;
use hashbrown::HashSet;
use std::collections::VecDeque;

/// The locks that are to be tried.
#[derive(Default)]
pub struct Unserved {
    /// In the order in which they are tried.
    queue: VecDeque<LockId>,
    members: HashSet<LockId>,
    /// How many from the front are to be tried in this round.
    this_round: usize,
    /// When to go on.
    due: Moment,
}

impl Unserved {
    /// Adds one that is to be tried at once.
    pub fn add(&mut self, lock: LockId) {
        if self.members.insert(lock.clone()) {
            self.queue.push_front(lock);
            self.this_round += 1;
            self.due = Moment::PAST;
        }
    }

    /// When to go on; None: there is nothing to try.
    pub fn next(&self) -> Option<Moment> {
        (!self.queue.is_empty()).then_some(self.due)
    }

    /// The next that is to be tried now.
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

    /// This one could not be read yet: it is tried again in the next round.
    pub fn retry(&mut self, lock: LockId) {
        self.queue.push_back(lock);
    }

    /// This one is done with. Where none is left, their memory is given back.
    pub fn remove(&mut self, lock: &LockId) {
        self.members.remove(lock);
        if self.members.is_empty() {
            *self = Unserved::default();
        }
    }

    /// The pass is over: the rest of the round goes on then.
    pub fn pause(&mut self, until: Moment) {
        if self.this_round > 0 {
            self.due = until;
        }
    }
}
