//! What is remembered of a lock, and when to look at it again.

use super::intervals;
use super::state::{Known, Moment, Place, Timer, Timers};
use super::Engine;
use crate::core::{End, Lock, Millis, Mode};
use crate::store::{LockRef, Store};

impl Engine {
    /// Remembers a lock and when to look at it again. `holds`: how many it has,
    /// from how many it had.
    pub(super) fn remember(
        &mut self,
        store: &Store<'_>,
        after: &Lock,
        holds: impl FnOnce(u64) -> u64,
        earliest: End,
        how: Reschedule,
    ) {
        let lock = store.lock();
        let mode = after.mode();
        if mode.is_none() {
            self.untrack_lock(lock);
            let Some(place) = self.memory.place(lock) else {
                return;
            };
            if !self.has_queue(store) {
                self.forget_at(place);
                return;
            }
        }
        let (place, known) = self.memory.entry(lock);
        known.mode = mode;
        known.is_unseen = false;
        if mode != Some(Mode::Write) {
            known.forget_token();
        }
        known.holds = u32::try_from(holds(known.holds.into())).unwrap_or(u32::MAX);
        if mode != Some(Mode::Read) {
            known.readers = None;
        }
        let mut due = match (mode, earliest) {
            (Some(_), End::At(at)) => Some(self.clock.when(at)),
            _ => None,
        };
        if how == Reschedule::NotLater {
            // A free lock has times too: the end of a reservation, the next try.
            due = sooner(due, known.due());
        }
        set_timer(&mut self.timers, place, known, due);
        if self.has_queue(store) {
            self.schedule_within(store, intervals::of_queue(self.waits.queue_count(), store, mode));
        }
    }

    /// Forgets the lock that is remembered there.
    pub(super) fn forget_at(&mut self, place: Place) {
        self.memory.remove(place);
        self.timers.cancel(place);
    }

    /// Has a lock looked at soon, for the server takes no writes now.
    pub(super) fn try_again(&mut self, store: &Store<'_>) {
        self.schedule_within(store, intervals::of_refused_grant(self.waits.queue_count()));
    }

    /// Has a lock looked at in so many ms at the latest.
    pub(super) fn schedule_within(&mut self, store: &Store<'_>, ms: Millis) {
        let known = self.memory.get(store.lock());
        // Most often there is an earlier one, and no need to look at the clocks.
        let at = self.clock.when(store.now()).after(ms);
        if known.and_then(Known::due).is_none_or(|due| due > at) {
            let at = self.within(store.ctx(), ms);
            self.schedule(store.lock(), at);
        }
    }

    /// Has a lock looked at when another of its times comes.
    pub(super) fn schedule_at_end(&mut self, store: &Store<'_>, end: End) {
        if let End::At(at) = end {
            self.schedule(store.lock(), self.clock.when(at));
        }
    }

    /// Has a lock looked at then, or before.
    pub(super) fn schedule(&mut self, lock: LockRef<'_>, at: Moment) {
        let (place, known) = self.memory.entry(lock);
        let due = sooner(known.due(), Some(at));
        set_timer(&mut self.timers, place, known, due);
    }

    /// Has a lock's queue served as soon as may be.
    pub(super) fn schedule_now(&mut self, lock: LockRef<'_>) {
        self.schedule(lock, Moment::PAST);
    }

    /// Has a lock that somebody else has changed looked at as soon as may be.
    pub(super) fn schedule_changed(&mut self, lock: LockRef<'_>) {
        self.tracked.doubt(lock);
        let (place, known) = self.memory.entry(lock);
        known.readers = None;
        set_timer(&mut self.timers, place, known, Some(Moment::PAST));
    }
}

/// How a look bears on the alarm of a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reschedule {
    /// All its holds were looked at, and its queue is served next, which sets
    /// the times that the queue waits for. The only look that may set the alarm
    /// later than it was.
    Exactly,
    /// There may be other times, earlier ones.
    NotLater,
}

fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

pub(super) fn set_timer(timers: &mut Timers, place: Place, known: &mut Known, due: Option<Moment>) {
    if known.due() == due {
        return;
    }
    match due {
        Some(due) => timers.add(due, Timer::Lock(place)),
        None => timers.cancel(place),
    }
    known.set_due(due);
}
