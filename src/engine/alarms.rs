//! What is to be done when.

use super::memory::Place;
use super::sessions::BindingId;
use super::wheel::Wheel;
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

/// All of it. The locks, of which there are many, by themselves: one of them
/// has one time, and it changes with each command.
#[derive(Default)]
pub struct Alarms {
    locks: Wheel,
    others: BTreeSet<(Millis, Alarm)>,
}

impl Alarms {
    /// Adds one that rings in the first ms after `at`. A lock's takes the place
    /// of the one that it had.
    pub fn add(&mut self, at: Millis, alarm: Alarm) {
        match alarm {
            Alarm::Lock(place) => self.locks.set(place.number(), at),
            alarm => drop(self.others.insert((at, alarm))),
        }
    }

    /// Takes one away that is no lock's.
    pub fn remove(&mut self, at: Millis, alarm: Alarm) {
        self.others.remove(&(at, alarm));
    }

    /// Takes a lock's away, if it has one.
    pub fn silence(&mut self, lock: Place) {
        self.locks.clear(lock.number());
    }

    /// When to look for one that rings: not later than the first does.
    pub fn first(&self) -> Option<Millis> {
        let lock = self.locks.first();
        let other = self.others.first().map(|(at, _)| *at);
        lock.into_iter().chain(other).min()
    }

    /// Takes the first, if it rings at `now`.
    pub fn take_due(&mut self, now: Millis) -> Option<Alarm> {
        self.locks.follow(now);
        let other = self.others.first().map(|(at, _)| *at).filter(|at| now > *at);
        let until = other.map_or(now, |at| at.saturating_add(1));
        if let Some(place) = self.locks.take_before(until) {
            return Some(Alarm::Lock(Place::of(place)));
        }
        other.and_then(|_| self.others.pop_first()).map(|(_, alarm)| alarm)
    }
}
