//! Waiting: how a request enters the queue, and how a waiter leaves it.

use super::acquire::Refused;
use super::intervals;
use super::request::{Acquired, Terms};
use super::state::{Answer, LockId, Steady, Timer, WaitRequest, Waiter};
use super::transaction::LockTxn;
use super::{Engine, Error};
use crate::core::wait;
use crate::core::{reservation, Lock, Millis, Others, OwnerId, Refusal, WaiterId, Want};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{LockRef, Owner, ReadScope, Reserved, Store};

impl LockTxn<'_, '_> {
    /// Puts a refused request into the queue and blocks its client. Fails if the request would wait
    /// for itself, or if too many clients wait. `timeout`: the longest wait in ms; None: no limit.
    pub fn wait(
        &mut self,
        owner: &Owner<'_>,
        terms: Terms,
        timeout: Option<Millis>,
        refused: Refused,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let lock = &refused.lock;
        self.note_writer(lock);
        let LockTxn { engine, store } = self;
        let since = Steady::now(store.ctx());
        let request = WaitRequest {
            name: owner.name().to_text(),
            terms,
            since,
            until: timeout.map(|ms| (since.after(ms), engine.within(store.ctx(), ms))),
            client: store.ctx().client_id().unwrap_or(0),
        };
        let until = request.until;
        let name = engine.waits.owner(owner.bytes()).cloned();
        let name = name.unwrap_or_else(|| owner.bytes().into());
        let place = engine.waits.lock(&store.lock()).unwrap_or_else(|| store.lock().into());
        let waiter = Waiter::new(name, place, terms.want, request);
        let id = wait::enter(self, lock, waiter)?;
        if let Some((_, at)) = until {
            self.engine.timers.add(at, Timer::Waiter(id));
        }
        if !block(id) {
            self.engine.remove_waiter(id);
            return Ok(Acquired::Refused(refused.remaining(self.store)));
        }
        let Refused { lock, refusal, reserved, .. } = refused;
        // It may be the waiter's turn at once, for example because it has the reservation.
        if refusal != Refusal::Held && self.engine.is_next(self.store, id, &lock, reserved.as_ref())
        {
            self.serve();
        }
        let LockTxn { engine, store } = self;
        let mut soon = intervals::AFTER_WAIT_BEGAN;
        if let Some(reserved) = reserved {
            engine.schedule_at_end(store, reserved.end);
            soon = intervals::RESERVED;
        }
        engine.schedule_within(store, soon);
        Ok(Acquired::Waiting)
    }

    /// Stores the writer in the queue: the search for circles asks for that owner first.
    fn note_writer(&mut self, lock: &Lock) {
        let queue = self.engine.waits.queue_mut(&self.store.lock());
        if let Some(queue) = queue.filter(|queue| queue.writer.is_none()) {
            if lock.others == Others::Writer {
                queue.writer = self.store.writer().ok().flatten().map(OwnerId::from);
            }
        }
    }
}

impl Engine {
    /// Whether a new waiter is the next in its queue.
    fn is_next(
        &self,
        store: &Store<'_>,
        id: WaiterId,
        lock: &Lock,
        reserved: Option<&Reserved>,
    ) -> bool {
        let reserved = reserved.map(|reserved| reserved.owner.as_slice());
        self.waits
            .queue(&store.lock())
            .and_then(|queue| queue.next(lock.mode(), self.settings.policy, reserved))
            .is_some_and(|(next, ..)| next == id)
    }

    pub(super) fn cancel_timer(&mut self, id: WaiterId, waiter: &Waiter) {
        if let Some((_, at)) = waiter.request.until {
            self.timers.remove(at, Timer::Waiter(id));
        }
    }

    /// Removes a waiter, and schedules its queues: the waiters behind it may be granted now.
    pub(super) fn remove_waiter(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waits.remove(id)?;
        self.cancel_timer(id, &waiter);
        waiter.places.iter().for_each(|place| self.queue_shortened(&place.lock));
        Some(waiter)
    }

    /// Schedules a queue that lost a waiter without serving it. Without other waiters, the lock is
    /// forgotten if it is free.
    pub(super) fn queue_shortened(&mut self, lock: &LockId) {
        match self.waits.queue(lock) {
            Some(_) => self.schedule_now(lock.get()),
            None => self.forget_if_idle(lock.get()),
        }
    }

    /// The waiters of a lock, in the order of service. Ignores reservations.
    pub(super) fn queue_in_order(&self, lock: LockRef<'_>) -> Vec<(WaiterId, Want, OwnerId)> {
        let queue = self.waits.queue(&lock);
        queue.map(|queue| queue.in_order(self.settings.policy, None)).unwrap_or_default()
    }

    /// Forgets a lock that is neither held nor waited for.
    pub(super) fn forget_if_idle(&mut self, lock: LockRef<'_>) {
        let Some(place) = self.memory.place(lock) else {
            return;
        };
        let is_free = self.memory.at(place).is_some_and(|known| known.mode.is_none());
        if is_free && self.waits.queue(&lock).is_none() {
            self.forget_at(place);
        }
    }

    /// The timer of a waiter fired. If the timeout has not passed yet, the timer is set again:
    /// timers go forward with a wall clock that is set, but a timeout is counted by the steady
    /// clock.
    pub(super) fn time_out(&mut self, ctx: Ctx<'_>, id: WaiterId) {
        let until = self.waits.get(id).and_then(|waiter| waiter.request.until);
        let Some((until, _)) = until else {
            return;
        };
        let now = Steady::now(ctx);
        if now <= until {
            let at = self.within(ctx, until.since(now));
            if let Some(request) = self.waits.request_mut(id) {
                request.until = Some((until, at));
            }
            self.timers.add(at, Timer::Waiter(id));
            return;
        }
        let remaining = self.waits.get(id).and_then(|waiter| self.remaining(ctx, waiter));
        if let Some(waiter) = self.remove_waiter(id) {
            self.answer(id, waiter, Answer::TimedOut(remaining));
        }
    }

    /// CLIENT UNBLOCK: removes a waiter. Returns its answer, or None if it has one already.
    pub fn unblock(&mut self, ctx: Ctx<'_>, id: WaiterId) -> Option<Answer> {
        let waiter = self.remove_waiter(id)?;
        Some(Answer::TimedOut(self.remaining(ctx, &waiter)))
    }

    /// Removes a waiter whose client disconnected. False if it had its answer already.
    pub fn disconnect_waiter(&mut self, id: WaiterId) -> bool {
        self.remove_waiter(id).is_some()
    }

    /// The ms until the holds or the reservation in a waiter's way end at the latest. None: they
    /// never end by themselves.
    fn remaining(&self, ctx: Ctx<'_>, waiter: &Waiter) -> Option<Millis> {
        let LockId { db, name } = waiter.lock();
        let key = Text::new(name);
        let remaining = Store::open(ctx.in_db(*db), &key, Access::Read).and_then(|store| {
            let lock = store.snapshot(&Owner::nobody(), ReadScope::Mode)?.lock;
            let reserved = store.reservation()?;
            let reserved_by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
            let policy = self.settings.policy;
            let reservation = reservation(reserved_by, &waiter.owner, waiter.want(), &lock, policy);
            let refused = Refused { lock, refusal: Refusal::Queue, reserved, reservation };
            Ok(refused.remaining(&store))
        });
        remaining.unwrap_or(Some(0))
    }
}
