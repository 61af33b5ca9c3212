//! Waiting: into the queue, and out of it again.

use super::acquire::{left, Acquired, Terms};
use super::alarms::Alarm;
use super::clock::{Moment, Steady};
use super::figures::Told;
use super::lapse::LOOK_AGAIN_RESERVED;
use super::memory::LockId;
use super::tracked::Grant;
use super::{Engine, Error, Scene};
use crate::core::{Arrivals, Lock, Millis, Mode, Others, OwnerId, Refusal, WaiterId, Want};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{LockRef, Owner, Reserved, Store, Survey};
use hashbrown::hash_map::Entry;

/// A client that waits for a lock.
#[derive(Clone)]
pub(super) struct Waiter {
    pub lock: LockId,
    pub owner: OwnerId,
    /// The owner's name, as the server keeps it.
    pub name: Text,
    pub terms: Terms,
    pub since: Steady,
    /// When its time is up, and when the alarm for that rings.
    pub until: Option<(Steady, Moment)>,
    /// The client, once it is blocked.
    pub client: u64,
    /// What it was granted, while the answer is on its way.
    pub grant: Option<Grant>,
    /// The same, as it is counted.
    pub told: Told,
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

/// What a waiter is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It has the hold.
    Held(Grant),
    /// Its time is up; what stands in the way ends in so many ms at the latest.
    TimedOut(Option<Millis>),
    /// It failed.
    Failed(Error),
}

/// How a waiter left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was waiting, and is to be dismissed.
    Waiting,
    /// It had been answered already.
    Answered,
}

impl Engine {
    /// Puts a refused request into the queue, unless it would wait for itself.
    pub(super) fn wait(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
        owner: &Owner<'_>,
        lock: &Lock,
        waiting: Waiting,
    ) -> Result<Acquired, Error> {
        let want = waiting.terms.want;
        let name = owner.name().to_text();
        let owner: OwnerId = owner.bytes().into();
        if want == Want::Write && lock.mode() == Some(Mode::Read) && !lock.own.reads.is_empty() {
            return Err(Error::Deadlock(vec![owner]));
        }
        let max = self.settings.max_waiters;
        if max > 0 && self.waiters.len() >= max {
            return Err(Error::TooManyWaiters);
        }
        let (_, known) = self.memory.entry(store.lock());
        self.queues += usize::from(known.queue.is_none());
        let queue = known.queue.get_or_insert_default();
        if want == Want::Upgrade {
            if let Some(other) = queue.other_upgrade(&owner) {
                return Err(Error::OtherUpgrade(other.clone()));
            }
        }
        self.last_waiter += 1;
        let id = self.last_waiter;
        queue.push(id, want, owner.clone());
        if queue.writer.is_none() && queue.len() > 1 && lock.others == Others::Writer {
            // All who come after this one will look for him.
            queue.writer = store.writer().ok().flatten().map(OwnerId::from);
        }
        let since = Steady::now(scene.ctx);
        let until = waiting.timeout.map(|ms| (since.after(ms), self.within(scene.ctx, ms)));
        if let Some((_, at)) = until {
            self.alarms.add(at, Alarm::Waiter(id));
        }
        let waiter = Waiter {
            lock: store.lock().into(),
            owner: owner.clone(),
            name,
            terms: waiting.terms,
            since,
            until,
            client: scene.ctx.client_id().unwrap_or(0),
            grant: None,
            told: Told::Other,
        };
        self.waiters.insert(id, waiter);
        match self.waits_of.entry(owner.clone()) {
            Entry::Vacant(new) => _ = new.insert(Arrivals::One(id, ())),
            Entry::Occupied(mut waits) => {
                waits.get_mut().insert(id, ());
                if self.waits_in_several_places(&owner) {
                    self.several.insert(owner.clone());
                }
            }
        }
        while let Some(circle) = self.circle_closed_by(scene, store, &owner, lock) {
            if circle.youngest == id {
                self.drop_waiter(id);
                return Err(Error::Deadlock(circle.owners));
            }
            // One that came about when somebody left, and is not yet met.
            if !self.break_circle(circle) {
                break;
            }
        }
        // Its turn may have come all the same: it may have a reservation.
        if waiting.refusal != Refusal::Held && self.is_next(store, id, lock, &waiting) {
            self.serve(scene, store);
        }
        let mut soon = SOON;
        if let Some(reserved) = waiting.reserved {
            self.look_by(store, reserved.end);
            soon = LOOK_AGAIN_RESERVED;
        }
        match self.answers.iter().position(|(answered, _)| *answered == id) {
            None => {
                self.look_within(store, soon);
                Ok(Acquired::Waiting(id))
            }
            Some(at) => {
                if let Some(waiter) = self.underway.remove(&id) {
                    self.told(waiter.grant);
                }
                match self.answers.swap_remove(at).1 {
                    Answer::Failed(error) => Err(error),
                    Answer::Held(grant) => Ok(Acquired::Held(grant.token)),
                    Answer::TimedOut(left) => Ok(Acquired::Refused(left)),
                }
            }
        }
    }

    /// Whether a new waiter is the next in its queue.
    fn is_next(&self, store: &Store<'_>, id: WaiterId, lock: &Lock, waiting: &Waiting) -> bool {
        let known = self.memory.get(store.lock());
        let reserved = waiting.reserved.as_ref().map(|reserved| reserved.owner.as_slice());
        known
            .and_then(|known| known.queue.as_ref())
            .and_then(|queue| queue.next(lock.mode(), self.settings.policy, reserved))
            .is_some_and(|(next, ..)| next == id)
    }

    /// Tells a waiter how it ended, and takes it off all books but the queue.
    pub(super) fn answer(&mut self, id: WaiterId, mut answer: Answer) {
        if let Some(mut waiter) = self.strike(id) {
            waiter.told = Told::of(&answer);
            if let Answer::Held(grant) = &mut answer {
                self.track_answer(grant, &waiter);
                waiter.grant = Some(*grant);
            }
            self.underway.insert(id, waiter);
            self.answers.push((id, answer));
        }
    }

    fn strike(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        if let Some((_, at)) = waiter.until {
            self.alarms.remove(at, Alarm::Waiter(id));
        }
        if let Some(waits) = self.waits_of.get_mut(&waiter.owner) {
            if waits.remove(id) == 0 {
                self.waits_of.remove(&waiter.owner);
                self.unsettled.remove(&waiter.owner);
            } else {
                self.unsettled.insert(waiter.owner.clone());
            }
            if self.several.contains(&waiter.owner) && !self.waits_in_several_places(&waiter.owner)
            {
                self.several.remove(&waiter.owner);
            }
        }
        Some(waiter)
    }

    /// The waiters of an owner, in the order of their arrival.
    pub(super) fn waiters_of(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        let ids = self.waits_of.get(owner).into_iter().flat_map(Arrivals::iter);
        ids.filter_map(|(id, ())| Some((id, self.waiters.get(&id)?)))
    }

    /// Whether an owner waits for several locks, or for several kinds of holds.
    fn waits_in_several_places(&self, owner: &[u8]) -> bool {
        let mut places =
            self.waiters_of(owner).map(|(_, waiter)| (&waiter.lock, waiter.terms.want));
        let first = places.next();
        places.any(|place| Some(place) != first)
    }

    /// Takes a waiter out of its queue. Those behind it may get in now.
    pub(super) fn drop_waiter(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.strike(id)?;
        self.leave_queue(id, &waiter);
        Some(waiter)
    }

    pub(super) fn leave_queue(&mut self, id: WaiterId, waiter: &Waiter) {
        let lock = waiter.lock.get();
        let Some(known) = self.memory.get_mut(lock) else {
            return;
        };
        let Some(queue) = known.queue.as_mut() else {
            return;
        };
        queue.remove(id, waiter.terms.want);
        if queue.is_empty() {
            known.queue = None;
            self.queues -= 1;
            self.forget_if_idle(lock);
        } else {
            self.serve_now(lock);
        }
    }

    /// Forgets a lock that is neither held nor waited for.
    pub(super) fn forget_if_idle(&mut self, lock: LockRef<'_>) {
        let Some(place) = self.memory.place(lock) else {
            return;
        };
        let known = self.memory.at(place);
        if known.is_some_and(|known| known.mode.is_none() && known.queue.is_none()) {
            self.forget_at(place);
        }
    }

    /// A waiter's alarm rang. That may be before its time is up: the alarms go
    /// forward with a wall clock that is set, and its time does not.
    pub(super) fn time_out(&mut self, ctx: Ctx<'_>, id: WaiterId) {
        let Some(Waiter { until: Some((until, _)), .. }) = self.waiters.get(&id) else {
            return;
        };
        let (until, now) = (*until, Steady::now(ctx));
        if now <= until {
            let at = self.within(ctx, until.since(now));
            if let Some(waiter) = self.waiters.get_mut(&id) {
                waiter.until = Some((until, at));
            }
            self.alarms.add(at, Alarm::Waiter(id));
            return;
        }
        if let Some(waiter) = self.waiters.get(&id).cloned() {
            let left = self.left_of(ctx, &waiter);
            self.answer(id, Answer::TimedOut(left));
            self.leave_queue(id, &waiter);
        }
    }

    /// CLIENT UNBLOCK: the ms until what stands in the way ends at the latest.
    /// None when this waiter is answered already.
    pub fn stop(&mut self, ctx: Ctx<'_>, id: WaiterId) -> Option<Option<Millis>> {
        let waiter = self.drop_waiter(id)?;
        Some(self.left_of(ctx, &waiter))
    }

    /// A waiter's client is gone.
    pub fn left(&mut self, id: WaiterId) -> Left {
        match self.drop_waiter(id) {
            Some(_) => Left::Waiting,
            None => Left::Answered,
        }
    }

    fn left_of(&mut self, ctx: Ctx<'_>, waiter: &Waiter) -> Option<Millis> {
        let key = Text::new(&waiter.lock.name);
        let left = Store::open(ctx.in_db(waiter.lock.db), &key, Access::Read).and_then(|store| {
            let lock = store.look(&Owner::nobody(), Survey::Mode)?.lock;
            let reserved = store.reservation()?;
            let Waiter { owner, terms, .. } = waiter;
            let reservation = self.reservation(reserved.as_ref(), terms.want, &lock, owner);
            Ok(left(&store, &lock, Refusal::Queue, reserved, reservation))
        });
        left.unwrap_or(Some(0))
    }

    /// Whether answers wait to be sent.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answers that wait to be sent.
    pub fn take_answers(&mut self) -> Vec<(WaiterId, Answer)> {
        std::mem::take(&mut self.answers)
    }
}

/// How soon a lock is looked at for which somebody begins to wait, in ms.
const SOON: Millis = 50;
