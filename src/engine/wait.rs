//! Waiting: how a request enters the queue, and how a waiter leaves it.

use super::acquire::Refused;
use super::held::is_released;
use super::intervals;
use super::request::{Acquired, Terms};
use super::state::{Answer, Known, LockId, Steady, Timer, WaitEnd, WaitRequest, Waiter};
use super::transaction::LockTxn;
use super::{Engine, Error};
use crate::core::wait::{self, Holder, Place};
use crate::core::{reservation, End, Lock, Millis, Mode, Others, OwnerId, Refusal, WaiterId, Want};
use crate::ffi::{Access, Ctx, Text};
use crate::planted::leave_behind;
use crate::store::{self, LockRef, Owner, ReadScope, Reserved, Store, What};
use smallvec::SmallVec;

impl LockTxn<'_, '_> {
    /// Puts a refused request into the queue and blocks its client. Fails if the request would wait
    /// for itself, or if too many clients wait. `timeout`: the longest wait in ms; None: no limit.
    pub fn wait(
        &mut self,
        owner: &Owner<'_>,
        want: Want,
        terms: Terms,
        timeout: Option<Millis>,
        refused: Refused,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let lock = self.engine.place_of(self.store.lock());
        let places = SmallVec::from([Place { lock, want }]);
        let snapshots = std::slice::from_ref(&refused.lock);
        let Some(id) = self.enter(owner, places, snapshots, terms, timeout, block)? else {
            return Ok(Acquired::Refused(refused.remaining(self.store)));
        };
        let Refused { lock, refusal, reserved, .. } = refused;
        self.began_to_wait(id, want, &lock);
        // It may be the waiter's turn at once, for example because it has the reservation.
        if refusal != Refusal::Held && self.engine.is_next(self.store, id, &lock, reserved.as_ref())
        {
            self.serve();
        }
        self.schedule_for_waiter(reserved.map(|reserved| reserved.end));
        Ok(Acquired::Waiting)
    }

    /// Puts a request into its queues and blocks its client. None: the server does not let the
    /// client block. `snapshots`: the locks as the owner sees them.
    pub fn enter(
        &mut self,
        owner: &Owner<'_>,
        places: SmallVec<[Place<LockId>; 1]>,
        snapshots: &[Lock],
        terms: Terms,
        timeout: Option<Millis>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Option<WaiterId>, Error> {
        let LockTxn { engine, store, .. } = self;
        let since = Steady::now(store.ctx());
        let request = WaitRequest {
            name: owner.name().to_text(),
            terms,
            since,
            until: timeout.map(|ms| (since.after(ms), engine.within(store.ctx(), ms))),
            client: store.ctx().client_id().unwrap_or(0),
            blockers: Vec::new(),
        };
        let until = request.until;
        let name = engine.owner_id(owner.bytes());
        let waiter = Waiter { owner: name, places, request };
        let id = wait::enter(self, snapshots, waiter).map_err(|rejected| {
            let error = Error::from(rejected.why);
            if error.is_deadlock() {
                let end = WaitEnd::Denied(error.clone());
                self.engine.wait_is_over(self.store.ctx(), &rejected.waiter, &end);
            }
            error
        })?;
        if let Some((_, at)) = until {
            self.engine.timers.add(at, Timer::Waiter(id));
        }
        if block(id) {
            return Ok(Some(id));
        }
        self.engine.remove_waiter(id);
        Ok(None)
    }

    /// Schedules a refresh of the lock, because a client has begun to wait for it. `reserved`: the
    /// end of the reservation on it.
    pub fn schedule_for_waiter(&mut self, reserved: Option<End>) {
        let LockTxn { engine, store, .. } = self;
        let mut soon = intervals::AFTER_WAIT_BEGAN;
        if let Some(end) = reserved {
            engine.schedule_at_end(store, end);
            soon = intervals::RESERVED;
        }
        engine.schedule_within(store, soon);
    }

    /// Notes that a waiter has joined the queue. `lock`: the lock as its owner sees it.
    pub fn began_to_wait(&mut self, id: WaiterId, want: Want, lock: &Lock) {
        self.note_holder(lock);
        self.note_blockers(id, want, lock);
        let queue = self.engine.waits.queue(&self.store.lock());
        if !lock.is_free() && queue.is_some_and(|queue| queue.len() == 1) {
            self.store.notice(What::Wanted);
        }
    }

    /// Finds out who holds the lock, if it has waiters and that is not known. The search for
    /// circles asks for it. `lock`: the lock as any owner sees it.
    pub(super) fn note_holder(&mut self, lock: &Lock) {
        let name = self.store.lock();
        if self.engine.waits.queue(&name).is_some_and(|queue| !queue.knows_holder()) {
            let holder = match lock.others {
                Others::Writer => self.sole_writer().map_or(Holder::Anybody, Holder::Only),
                _ if lock.is_free() => Holder::Nobody,
                _ => Holder::Anybody,
            };
            self.engine.waits.set_holder(&name, holder);
        }
    }

    /// The owner that writes, if the hash counts no other holds.
    fn sole_writer(&self) -> Option<OwnerId> {
        let writer = self.store.writer().ok()??;
        let is_sole = self.store.has_sole_writer(&writer).unwrap_or(false);
        is_sole.then(|| writer.into())
    }
}

impl Engine {
    /// Notes who may hold a lock after a commit. `after`: the lock as `owner` sees it.
    pub(super) fn note_committed(&mut self, lock: LockRef<'_>, owner: &[u8], after: &Lock) {
        let Some(queue) = self.waits.queue(&lock) else {
            return;
        };
        let holder = match after.mode() {
            None => Holder::Nobody,
            Some(Mode::Read) => Holder::Anybody,
            Some(Mode::Write) if after.own.writes == 0 => return,
            Some(Mode::Write) => match queue.only_holder() {
                Some(holder) if **holder == *owner => return,
                _ => Holder::Only(self.owner_id(owner)),
            },
        };
        self.waits.set_holder(&lock, holder);
    }

    /// The name of an owner, shared with the wait list if the owner waits.
    fn owner_id(&self, owner: &[u8]) -> OwnerId {
        self.waits.owner(owner).cloned().unwrap_or_else(|| owner.into())
    }

    /// A lock, as the wait list names it.
    pub(super) fn place_of(&self, lock: LockRef<'_>) -> LockId {
        self.waits.lock(&lock).unwrap_or_else(|| lock.into())
    }

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
            .and_then(|queue| queue.next(lock.mode(), self.settings.policy, reserved, 0))
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
        for place in &waiter.places {
            leave_behind(|| self.queue_in_order(place.lock.get()).first().map(|(id, ..)| *id));
        }
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
        let is_idle = |known: &Known| known.mode().is_none() && !is_released(known);
        let is_free = self.memory.at(place).is_some_and(is_idle);
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
        self.wait_is_over(ctx, &waiter, &WaitEnd::Unblocked);
        Some(Answer::TimedOut(self.remaining(ctx, &waiter)))
    }

    /// Removes a waiter whose client disconnected. False if it had its answer already.
    pub fn disconnect_waiter(&mut self, ctx: Ctx<'_>, id: WaiterId) -> bool {
        let Some(waiter) = self.remove_waiter(id) else {
            return false;
        };
        self.wait_is_over(ctx, &waiter, &WaitEnd::Disconnected);
        true
    }

    /// The ms until the holds or the reservations in a waiter's way end at the latest. None: they
    /// never end by themselves.
    fn remaining(&self, ctx: Ctx<'_>, waiter: &Waiter) -> Option<Millis> {
        let remaining = waiter.places.iter().map(|place| self.remaining_at(ctx, waiter, place));
        latest(remaining)
    }

    fn remaining_at(&self, ctx: Ctx<'_>, waiter: &Waiter, place: &Place<LockId>) -> Option<Millis> {
        let key = Text::new(&place.lock.name);
        let remaining =
            Store::open(ctx.in_db(place.lock.db), &key, Access::Read).and_then(|store| {
                if waiter.is_joint() && is_open(&store, waiter, place.want)? {
                    return Ok(Some(0));
                }
                let lock = store.snapshot(&Owner::nobody(), ReadScope::Mode)?.lock;
                let reserved = store.reservation()?;
                let reserved_by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
                let policy = self.settings.policy;
                let reservation =
                    reservation(reserved_by, &waiter.owner, place.want, &lock, policy);
                let refused = Refused { lock, refusal: Refusal::Queue, reserved, reservation };
                Ok(refused.remaining(&store))
            });
        remaining.unwrap_or(Some(0))
    }
}

/// Whether no hold of another owner is in the way of a joint waiter here: it waits for another of
/// its locks.
fn is_open(store: &Store<'_>, waiter: &Waiter, want: Want) -> Result<bool, store::Error> {
    let name = Text::new(&waiter.owner);
    let lock = store.snapshot(&Owner::new(&name)?, ReadScope::Mode)?.lock;
    Ok(want.is_open_to(&lock) || want == Want::Read && lock.mode() == Some(Mode::Read))
}

/// The latest of these ends, in ms from now. None: one of them never comes.
pub(super) fn latest(ends: impl IntoIterator<Item = Option<Millis>>) -> Option<Millis> {
    ends.into_iter().try_fold(0, |latest, end| Some(end?.max(latest)))
}
