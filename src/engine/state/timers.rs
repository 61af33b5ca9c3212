//! The timers of waiters, session holds and locks.

use super::clock::Moment;
use super::memory::Place;
use super::tracked::TrackedId;
use super::wheel::{Step, Wheel};
use crate::core::WaiterId;
use std::collections::BTreeSet;

/// Something that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The waiter times out.
    Waiter(WaiterId),
    /// The session hold is renewed.
    Session(TrackedId),
    /// The lock is refreshed: a hold may have lapsed, or the queue may have to be served.
    Lock(Place),
}

/// The result of [`Timers::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTimer {
    /// This timer fired. It is not set any more.
    Fires(Timer),
    /// No timer fired in this step. Call again.
    Moved,
    /// No timer is due.
    Nothing,
}

/// All timers. Those of locks are in a timer wheel, because there are many of them and each command
/// changes one.
#[derive(Default)]
pub struct Timers {
    /// The timers of locks, by database. Each lock has at most one.
    locks: Vec<Option<Box<Wheel>>>,
    waiters: BTreeSet<(Moment, WaiterId)>,
    sessions: BTreeSet<(Moment, TrackedId)>,
    /// Whether the last pass ended with work that was due.
    pub unfinished: bool,
    /// Work that writes keys does not begin before this time, because the server took no writes in
    /// the last pass. [`Moment::PAST`]: it took writes.
    pub writes_from: Moment,
}

impl Timers {
    /// Sets a timer that fires in the first ms after `at`. A lock's timer replaces the one that it
    /// had. A waiter's or a session hold's does not.
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

    /// Removes a timer. For a waiter or a session hold, `at` is the time that it was set to. For a
    /// lock, `at` does not matter.
    pub fn remove(&mut self, at: Moment, timer: Timer) {
        match timer {
            Timer::Lock(place) => self.cancel(place),
            Timer::Waiter(id) => _ = self.waiters.remove(&(at, id)),
            Timer::Session(id) => _ = self.sessions.remove(&(at, id)),
        }
    }

    /// Removes the timer of a lock, if it has one.
    pub fn cancel(&mut self, lock: Place) {
        if let Some(wheel) = self.wheel(lock.db) {
            wheel.clear(lock.number);
        }
    }

    /// Removes and returns the timers of all locks of a database.
    pub fn take(&mut self, db: i32) -> Option<Box<Wheel>> {
        self.locks.get_mut(usize::try_from(db).ok()?)?.take()
    }

    /// Exchanges the timers of the locks of two databases.
    pub fn swap(&mut self, one: i32, other: i32) {
        if let (Ok(one), Ok(other)) = (usize::try_from(one), usize::try_from(other)) {
            let larger = one.max(other);
            if self.locks.len() <= larger {
                self.locks.resize_with(larger + 1, || None);
            }
            self.locks.swap(one, other);
        }
    }

    /// Follows [`Memory::pack`](super::Memory::pack): a lock was moved from one place to another,
    /// and so many places remain.
    pub fn pack(&mut self, db: i32, moved: Option<(u32, u32)>, places: usize) {
        if let Some(wheel) = self.wheel(db) {
            wheel.pack(moved, places);
        }
    }

    /// When the next timer of a waiter fires.
    pub fn first_waiter(&self) -> Option<Moment> {
        self.waiters.first().map(|(at, _)| *at)
    }

    /// A time before which no timer of a lock or a session hold fires. None: there is no such
    /// timer.
    pub fn first_other(&self) -> Option<Moment> {
        let locks = self.locks.iter().flatten().filter_map(|wheel| wheel.first().map(Moment));
        let session = self.sessions.first().map(|(at, _)| *at);
        locks.chain(session).min()
    }

    /// Does one step towards the first timer that is due at `now`. Locks come before waiters and
    /// session holds that are due at the same time or later.
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

    /// Takes the first timer of a waiter that is due at `now`.
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
