//! Recovery from a panic. The work outside of commands is done in steps. A panic ends the step in
//! which it happens, and nothing else.

use super::intervals;
use super::state::{Session, Timer};
use super::tracking::renewal_interval;
use super::Engine;
use crate::core::WaiterId;
use crate::ffi::{guarded, Ctx};
use crate::store::LockRef;

impl Engine {
    /// Runs `work` as a step. None: it ended in a panic.
    pub(super) fn step<R>(&mut self, work: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let done = guarded(|| work(self));
        if done.is_err() {
            self.note_panic();
        }
        done.ok()
    }

    /// Records that a step ended in a panic.
    pub(super) fn note_panic(&mut self) {
        self.panicked = true;
        // Requests a pass: the server calls `take_panicked` there.
        self.timers.unfinished = true;
    }

    /// Whether a step ended in a panic since the last call. There may then be waiters without
    /// clients, and clients without waiters.
    pub fn take_panicked(&mut self) -> bool {
        std::mem::take(&mut self.panicked)
    }

    /// Sets a timer again whose work ended in a panic, with a delay. See [`intervals::AFTER_PANIC`].
    pub(super) fn retry_timer(&mut self, ctx: Ctx<'_>, timer: Timer) {
        let at = self.within(ctx, intervals::AFTER_PANIC);
        match timer {
            Timer::Waiter(id) => {
                let Some(request) = self.waits.request_mut(id) else {
                    return;
                };
                request.until = request.until.map(|(until, _)| (until, at));
                self.timers.add(at, timer);
            }
            Timer::Session(id) => {
                if let Some(session) = self.tracked.get(id).and_then(|tracked| tracked.session) {
                    let wait = renewal_interval(session.lease).min(intervals::AFTER_PANIC);
                    let due = self.within(ctx, wait);
                    self.bind(id, Some(Session { due, ..session }));
                }
            }
            Timer::Lock(place) => {
                if let Some(name) = self.memory.at(place).map(|known| known.name().to_vec()) {
                    self.schedule(LockRef { db: place.db, name: &name }, at);
                }
            }
        }
    }

    /// Whether this waiter is on the wait list, or its answer is still to be sent.
    pub fn has_waiter(&self, id: WaiterId) -> bool {
        self.waits.get(id).is_some()
            || self.deliveries.unsent.iter().any(|(answered, _)| *answered == id)
    }

    /// Removes the waiters for which `is_one` is true, without an answer.
    pub fn remove_waiters(&mut self, is_one: impl Fn(WaiterId) -> bool) {
        let ids: Vec<WaiterId> = self.waits.ids().filter(|id| is_one(*id)).collect();
        for id in ids {
            self.remove_waiter(id);
        }
    }

    /// Treats the answer of this waiter as lost: a new hold that it grants is returned.
    pub fn take_back(&mut self, id: WaiterId) {
        if let Some(in_flight) = self.deliveries.remove(id) {
            self.undelivered(&in_flight, false);
        }
    }
}
