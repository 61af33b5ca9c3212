//! What is to be done when.

use super::memory::LockId;
use super::sessions::BindingId;
use crate::core::{Millis, WaiterId};
use std::collections::BTreeSet;

/// Something to be done at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A waiter's time is up.
    Waiter(WaiterId),
    /// A session hold is to be renewed.
    Session(BindingId),
    /// A lock is to be looked at: a hold may have ended, or its queue is to be
    /// served.
    Lock(LockId),
}

/// All of it, ordered by time.
#[derive(Default)]
pub struct Alarms {
    set: BTreeSet<(Millis, Alarm)>,
}

impl Alarms {
    /// Adds one that rings in the first ms after `at`.
    pub fn add(&mut self, at: Millis, alarm: Alarm) {
        self.set.insert((at, alarm));
    }

    /// Takes one away.
    pub fn remove(&mut self, at: Millis, alarm: Alarm) {
        self.set.remove(&(at, alarm));
    }

    /// The time of the first.
    pub fn first(&self) -> Option<Millis> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Takes the first, if it rings at `now`.
    pub fn take_due(&mut self, now: Millis) -> Option<Alarm> {
        let due = self.set.first().is_some_and(|(at, _)| now > *at);
        if due {
            self.set.pop_first().map(|(_, alarm)| alarm)
        } else {
            None
        }
    }
}
