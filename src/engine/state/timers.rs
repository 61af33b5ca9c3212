//! What is to be done when.

use super::clock::Moment;
use super::memory::Place;
use super::tracked::TrackedId;
use super::wheel::{Step, Wheel};
use crate::core::WaiterId;
use std::collections::BTreeSet;

/// Something to be done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A waiter's time is up.
    Waiter(WaiterId),
    /// A session hold is to be renewed.
    Session(TrackedId),
    /// A lock is to be looked at: a hold may have ended, or its queue is to be
    /// served.
    Lock(Place),
}

/// What [`Timers::next`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTimer {
    /// This one rings. It is set no more.
    Fires(Timer),
    /// None yet, and there may be more.
    Moved,
    /// There is none, for now.
    Nothing,
}

/// All of it. The locks, of which there are many, by themselves: one of them
/// has one time, and it changes with each command.
#[derive(Default)]
pub struct Timers {
    /// For each database.
    locks: Vec<Option<Box<Wheel>>>,
    waiters: BTreeSet<(Moment, WaiterId)>,
    sessions: BTreeSet<(Moment, TrackedId)>,
    /// Whether the last pass left something to be done that was due.
    pub unfinished: bool,
    /// Since when the server may take writes again, at the earliest.
    pub writes_from: Moment,
}

impl Timers {
    /// Adds one that rings in the first ms after `at`. A lock's takes the place
    /// of the one that it had.
    pub fn add(&mut self, at: Moment, timer: Timer) {
        match timer {
            Timer::Lock(Place { db, number }) => {
                let index = usize::try_from(db).unwrap_or(0);
                if self.locks.len() <= index {
                    self.locks.resize_with(index + 1, || None);
                }
                self.locks[index].get_or_insert_default().set(number, at.0);
            }
            Timer::Waiter(id) => _ = self.waiters.insert((at, id)),
            Timer::Session(id) => _ = self.sessions.insert((at, id)),
        }
    }

    /// Takes one away; one of a waiter or a session is named with its time.
    pub fn remove(&mut self, at: Moment, timer: Timer) {
        match timer {
            Timer::Lock(place) => self.cancel(place),
            Timer::Waiter(id) => _ = self.waiters.remove(&(at, id)),
            Timer::Session(id) => _ = self.sessions.remove(&(at, id)),
        }
    }

    /// Takes a lock's away, if it has one.
    pub fn cancel(&mut self, lock: Place) {
        if let Some(wheel) = self.wheel(lock.db) {
            wheel.clear(lock.number);
        }
    }

    /// Takes out those of all locks of a database.
    pub fn take(&mut self, db: i32) -> Option<Box<Wheel>> {
        self.locks.get_mut(usize::try_from(db).ok()?)?.take()
    }

    /// The locks of these two databases have changed places.
    pub fn swap(&mut self, one: i32, other: i32) {
        if let (Ok(one), Ok(other)) = (usize::try_from(one), usize::try_from(other)) {
            let larger = one.max(other);
            if self.locks.len() <= larger {
                self.locks.resize_with(larger + 1, || None);
            }
            self.locks.swap(one, other);
        }
    }

    /// A lock was moved from one place to another, and there are so many places.
    pub fn pack(&mut self, db: i32, moved: Option<(u32, u32)>, places: usize) {
        if let Some(wheel) = self.wheel(db) {
            wheel.pack(moved, places);
        }
    }

    /// When a waiter's rings next.
    pub fn first_waiter(&self) -> Option<Moment> {
        self.waiters.first().map(|(at, _)| *at)
    }

    /// When another one rings next, or earlier.
    pub fn first_other(&self) -> Option<Moment> {
        let locks = self.locks.iter().flatten().filter_map(|wheel| wheel.first().map(Moment));
        let session = self.sessions.first().map(|(at, _)| *at);
        locks.chain(session).min()
    }

    /// Goes on to the first that rings at `now`, a step at a time.
    pub fn next(&mut self, now: Moment) -> NextTimer {
        let session = self.sessions.first().map(|(at, _)| *at);
        let other = self.first_waiter().into_iter().chain(session).min().filter(|at| now > *at);
        let until = other.map_or(now, |at| at.after(1));
        for (wheel, db) in self.locks.iter_mut().zip(0..) {
            let Some(wheel) = wheel else { continue };
            match wheel.step(until.0) {
                Step::Due(number) => return NextTimer::Fires(Timer::Lock(Place { db, number })),
                Step::Moved => return NextTimer::Moved,
                Step::Nothing => {}
            }
        }
        match other {
            Some(at) if session == Some(at) => {
                let first = self.sessions.pop_first();
                first.map_or(NextTimer::Nothing, |(_, id)| NextTimer::Fires(Timer::Session(id)))
            }
            _ => self.next_waiter(now),
        }
    }

    /// The first waiter's that rings at `now`.
    pub fn next_waiter(&mut self, now: Moment) -> NextTimer {
        match self.first_waiter().filter(|at| now > *at).and_then(|_| self.waiters.pop_first()) {
            Some((_, id)) => NextTimer::Fires(Timer::Waiter(id)),
            None => NextTimer::Nothing,
        }
    }

    fn wheel(&mut self, db: i32) -> Option<&mut Wheel> {
        self.locks.get_mut(usize::try_from(db).ok()?)?.as_deref_mut()
    }
}
