//! What is remembered of a lock, and when the lock is refreshed.

use super::held::{steady_of, Before};
use super::intervals;
use super::state::{Known, Moment, Place, Tenure, Timer, Timers};
use super::Engine;
use crate::core::wait::Holder;
use crate::core::{End, Lock, Millis, Mode};
use crate::store::{LockRef, Store};

impl Engine {
    /// Updates what is remembered of a lock, and schedules its next refresh. `before` and `after`:
    /// the lock before and after the change. `holds` maps the old number of holds to the new one.
    /// `earliest` is the first known end among the holds of `after`.
    pub(super) fn remember(
        &mut self,
        store: &Store<'_>,
        (before, after): (Before, &Lock),
        holds: impl FnOnce(u64) -> u64,
        earliest: End,
        reschedule: Reschedule,
    ) {
        let lock = store.lock();
        let mode = after.mode();
        if mode.is_none() {
            self.untrack_lock(lock);
            let Some(place) = self.memory.place(lock) else {
                return;
            };
            let has_queue = self.has_queue(store);
            self.end_tenure(store, place, before, has_queue);
            if !has_queue {
                self.forget_at(place);
                return;
            }
        }
        let ends = match (mode, earliest) {
            (Some(_), End::At(at)) => Some((at, self.before_lapse(store, at))),
            _ => None,
        };
        let keeps_last_owner = self.settings.events.names_owners();
        let (place, known, mode_before) = self.memory.set_mode(lock, mode);
        let doubtful = std::mem::take(&mut known.needs_refresh);
        let goes_on = match before {
            Before::Held => mode_before.is_some() && !doubtful,
            // A waiter gets the lock in the step in which it was given back.
            Before::Free => mode_before.is_none() && !doubtful && known.tenure.is_some(),
        };
        let mut ended = None;
        if mode.is_some() && !goes_on {
            let now = steady_of(&self.clock, store);
            ended = known.tenure.until(now);
            known.tenure = match before {
                Before::Free => Tenure::taken(now),
                Before::Held => Tenure::found(now),
            };
        }
        if !keeps_last_owner {
            known.set_last_owner(None);
        }
        if before == Before::Free || mode != Some(Mode::Write) {
            known.forget_token();
        }
        known.holds = u32::try_from(holds(known.holds.into())).unwrap_or(u32::MAX);
        if mode != Some(Mode::Read) {
            known.readers = None;
        }
        // With its readers their names are remembered.
        let names_are_known = known.readers.is_some();
        let due = ends.map(|(at, before)| if names_are_known { at } else { before });
        let mut due = due.map(|at| self.clock.moment_of(at));
        if reschedule == Reschedule::NotLater {
            // A free lock can have a time, too: the end of a reservation or the next retry.
            due = earlier_of(due, known.due());
        }
        set_timer(&mut self.timers, place, known, due);
        if let Some(held) = ended {
            self.lock_freed(lock, held);
        }
        if self.has_queue(store) {
            self.schedule_within(store, intervals::of_queue(self.waits.queue_count(), store, mode));
        }
    }

    /// Forgets the lock at this place, and cancels its timer.
    pub(super) fn forget_at(&mut self, place: Place) {
        self.memory.remove(place);
        self.timers.cancel(place);
    }

    /// Schedules a retry, because the server takes no grant now.
    pub(super) fn schedule_retry(&mut self, store: &Store<'_>) {
        self.schedule_within(store, intervals::of_refused_grant(self.waits.queue_count()));
    }

    /// Schedules a refresh of a lock within `ms` ms.
    pub(super) fn schedule_within(&mut self, store: &Store<'_>, ms: Millis) {
        let known = self.memory.get(store.lock());
        // Most often an earlier refresh is set, and the clocks need not be read.
        let at = self.clock.moment_of(store.now()).after(ms);
        if known.and_then(Known::due).is_none_or(|due| due > at) {
            let at = self.within(store.ctx(), ms);
            self.schedule(store.lock(), at);
        }
    }

    /// Schedules a refresh for the end of a hold or a reservation.
    pub(super) fn schedule_at_end(&mut self, store: &Store<'_>, end: End) {
        if let End::At(at) = end {
            self.schedule(store.lock(), self.clock.moment_of(at));
        }
    }

    /// Schedules a refresh of a lock at `at`, unless an earlier one is set.
    pub(super) fn schedule(&mut self, lock: LockRef<'_>, at: Moment) {
        let (place, known) = self.memory.entry(lock);
        let due = earlier_of(known.due(), Some(at));
        set_timer(&mut self.timers, place, known, due);
    }

    /// Schedules a refresh of a lock as soon as possible.
    pub(super) fn schedule_now(&mut self, lock: LockRef<'_>) {
        self.schedule(lock, Moment::PAST);
    }

    /// Schedules a refresh of a lock after an external change. What is remembered of its holders
    /// and its tracked holds is no longer trusted.
    pub(super) fn schedule_changed(&mut self, lock: LockRef<'_>) {
        self.waits.set_holder(&lock, Holder::Anybody);
        self.tracked.mark_doubtful(lock);
        let (place, known) = self.memory.entry(lock);
        known.readers = None;
        set_timer(&mut self.timers, place, known, Some(Moment::PAST));
    }
}

/// How a commit or a refresh changes the timer of a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reschedule {
    /// Sets the timer to the given time, even if that is later. Only where the ends of all holds
    /// are known: in a refresh and in a FORCEUNLOCK. The queue adds its own times when it is
    /// served.
    Exactly,
    /// Keeps an earlier time that is set, because some holds were not read.
    NotLater,
}

fn earlier_of(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
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
