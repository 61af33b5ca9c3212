//! Waiting: into the queue, and out of it again.

use super::acquire::{left, Acquired, Terms};
use super::alarms::Alarm;
use super::clock::{Moment, Steady};
use super::deliveries::Answer;
use super::intervals;
use super::memory::LockId;
use super::transaction::LockTxn;
use super::{Engine, Error};
use crate::core::wait;
use crate::core::{reservation, Lock, Millis, Others, OwnerId, Refusal, WaiterId, Want};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{LockRef, Owner, Reserved, Store, Survey};

/// A client that waits for a lock.
pub(super) type Waiter = wait::Waiter<LockId, Asked>;

/// What a waiter asked for.
#[derive(Clone)]
pub(super) struct Asked {
    /// The owner's name, as the server keeps it.
    pub name: Text,
    pub terms: Terms,
    pub since: Steady,
    /// When its time is up, and when the alarm for that rings.
    pub until: Option<(Steady, Moment)>,
    /// The client.
    pub client: u64,
}

/// How a request is going to wait.
pub(super) struct Waiting {
    pub terms: Terms,
    /// For how many ms at most; None: without end.
    pub timeout: Option<Millis>,
    /// Why it has to.
    pub refusal: Refusal,
    /// The reservation that stands.
    pub reserved: Option<Reserved>,
}

/// How a waiter left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was waiting, and is to be dismissed.
    Waiting,
    /// It had been answered already.
    Answered,
}

impl LockTxn<'_, '_> {
    /// Puts a refused request into the queue, unless it would wait for itself.
    pub fn wait(
        &mut self,
        owner: &Owner<'_>,
        lock: &Lock,
        waiting: Waiting,
    ) -> Result<Acquired, Error> {
        let Waiting { terms, timeout, refusal, reserved } = waiting;
        let LockTxn { engine, store } = self;
        let known = engine.waits.queue_mut(&store.lock());
        if let Some(queue) = known.filter(|queue| queue.writer.is_none()) {
            if lock.others == Others::Writer {
                // All who come after this one will look for him.
                queue.writer = store.writer().ok().flatten().map(OwnerId::from);
            }
        }
        let since = Steady::now(store.ctx());
        let asked = Asked {
            name: owner.name().to_text(),
            terms,
            since,
            until: timeout.map(|ms| (since.after(ms), engine.within(store.ctx(), ms))),
            client: store.ctx().client_id().unwrap_or(0),
        };
        let until = asked.until;
        let name = engine.waits.owner(owner.bytes()).cloned();
        let name = name.unwrap_or_else(|| owner.bytes().into());
        let at = engine.waits.lock(&store.lock()).unwrap_or_else(|| store.lock().into());
        let waiter = Waiter::new(name, at, terms.want, asked);
        let id = wait::enter(self, lock, waiter)?;
        if let Some((_, at)) = until {
            self.engine.alarms.add(at, Alarm::Waiter(id));
        }
        // Its turn may have come all the same: it may have a reservation.
        if refusal != Refusal::Held && self.engine.is_next(self.store, id, lock, reserved.as_ref())
        {
            self.serve();
        }
        let LockTxn { engine, store } = self;
        let mut soon = intervals::AFTER_WAIT_BEGAN;
        if let Some(reserved) = reserved {
            engine.look_by(store, reserved.end);
            soon = intervals::RESERVED;
        }
        match engine.answers.iter().position(|(answered, _)| *answered == id) {
            None => {
                engine.look_within(store, soon);
                Ok(Acquired::Waiting(id))
            }
            Some(at) => {
                if let Some(in_flight) = engine.in_flight.remove(&id) {
                    engine.told(in_flight.grant);
                }
                match engine.answers.swap_remove(at).1 {
                    Answer::Failed(error) => Err(error),
                    Answer::Held(grant) => Ok(Acquired::Held(grant.token)),
                    Answer::TimedOut(left) => Ok(Acquired::Refused(left)),
                }
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

    pub(super) fn silence(&mut self, id: WaiterId, waiter: &Waiter) {
        if let Some((_, at)) = waiter.request.until {
            self.alarms.remove(at, Alarm::Waiter(id));
        }
    }

    /// Takes a waiter off the list. Those behind it may get in now.
    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waits.remove(id)?;
        self.silence(id, &waiter);
        waiter.places.iter().for_each(|place| self.queue_shortened(&place.lock));
        Some(waiter)
    }

    /// A waiter has left this queue without being served.
    pub(super) fn queue_shortened(&mut self, lock: &LockId) {
        match self.waits.queue(lock) {
            Some(_) => self.serve_now(lock.get()),
            None => self.forget_if_idle(lock.get()),
        }
    }

    /// Who waits for a lock, in the order of service without reservations.
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

    /// A waiter's alarm rang. That may be before its time is up: the alarms go
    /// forward with a wall clock that is set, and its time does not.
    pub(super) fn time_out(&mut self, ctx: Ctx<'_>, id: WaiterId) {
        let until = self.waits.get(id).and_then(|waiter| waiter.request.until);
        let Some((until, _)) = until else {
            return;
        };
        let now = Steady::now(ctx);
        if now <= until {
            let at = self.within(ctx, until.since(now));
            if let Some(asked) = self.waits.request_mut(id) {
                asked.until = Some((until, at));
            }
            self.alarms.add(at, Alarm::Waiter(id));
            return;
        }
        let left = self.waits.get(id).and_then(|waiter| self.left_of(ctx, waiter));
        if let Some(waiter) = self.leave(id) {
            self.answer(id, waiter, Answer::TimedOut(left));
        }
    }

    /// CLIENT UNBLOCK: the ms until what stands in the way ends at the latest.
    /// None when this waiter is answered already.
    pub fn stop(&mut self, ctx: Ctx<'_>, id: WaiterId) -> Option<Option<Millis>> {
        let waiter = self.leave(id)?;
        Some(self.left_of(ctx, &waiter))
    }

    /// A waiter's client is gone.
    pub fn left(&mut self, id: WaiterId) -> Left {
        match self.leave(id) {
            Some(_) => Left::Waiting,
            None => Left::Answered,
        }
    }

    fn left_of(&self, ctx: Ctx<'_>, waiter: &Waiter) -> Option<Millis> {
        let LockId { db, name } = waiter.lock();
        let key = Text::new(name);
        let left = Store::open(ctx.in_db(*db), &key, Access::Read).and_then(|store| {
            let lock = store.look(&Owner::nobody(), Survey::Mode)?.lock;
            let reserved = store.reservation()?;
            let by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
            let policy = self.settings.policy;
            let reservation = reservation(by, &waiter.owner, waiter.want(), &lock, policy);
            Ok(left(&store, &lock, Refusal::Queue, reserved, reservation))
        });
        left.unwrap_or(Some(0))
    }
}
