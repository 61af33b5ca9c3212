//! What is to be done when.

use super::memory::Place;
use super::sessions::BindingId;
use crate::core::{Millis, WaiterId};
use std::collections::BTreeSet;

/// Something to be done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A waiter's time is up.
    Waiter(WaiterId),
    /// A session hold is to be renewed.
    Session(BindingId),
    /// A lock is to be looked at: a hold may have ended, or its queue is to be
    /// served.
    Lock(Place),
}

/// All of it, ordered by time. The locks, of which there are many, by
/// themselves: that takes less room.
#[derive(Default)]
pub struct Alarms {
    locks: BTreeSet<(Millis, Place)>,
    others: BTreeSet<(Millis, Alarm)>,
}

impl Alarms {
    /// Adds one that rings in the first ms after `at`.
    pub fn add(&mut self, at: Millis, alarm: Alarm) {
        match alarm {
            Alarm::Lock(place) => self.locks.insert((at, place)),
            alarm => self.others.insert((at, alarm)),
        };
    }

    /// Takes one away.
    pub fn remove(&mut self, at: Millis, alarm: Alarm) {
        match alarm {
            Alarm::Lock(place) => self.locks.remove(&(at, place)),
            alarm => self.others.remove(&(at, alarm)),
        };
    }

    /// The time of the first.
    pub fn first(&self) -> Option<Millis> {
        let lock = self.locks.first().map(|(at, _)| *at);
        let other = self.others.first().map(|(at, _)| *at);
        lock.into_iter().chain(other).min()
    }

    /// Takes the first, if it rings at `now`.
    pub fn take_due(&mut self, now: Millis) -> Option<Alarm> {
        let first = self.first().filter(|at| now > *at)?;
        if self.locks.first().is_some_and(|(at, _)| *at == first) {
            return self.locks.pop_first().map(|(_, place)| Alarm::Lock(place));
        }
        self.others.pop_first().map(|(_, alarm)| alarm)
    }
}
