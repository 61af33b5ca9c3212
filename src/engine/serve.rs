//! Serves a lock's queue, and connects `core/wait` with keys and clients.

use super::acquire::{Outcome, TriedFor};
use super::intervals;
use super::joint::JointOutcome;
use super::open_locks::OpenNames;
use super::state::{Answer, Grants, Known, LockId, WaitRequest, Waiter};
use super::transaction::LockTxn;
use super::{Engine, Error};
use crate::core::wait::{self, Attempt, Ended, Holders, Holding, Locks, WaitList};
use crate::core::{Mode, OwnerId, WaiterId};
use crate::ffi::{guarded, Access, Text};
use crate::planted::is_left_behind;
use crate::store::{LockRef, Owner, Store};

impl LockTxn<'_, '_> {
    /// Grants the waiters of the lock, as far as the rules and the server allow.
    pub fn serve(&mut self) {
        self.serve_queue(self.store.lock());
    }

    /// Serves the other waiters of an owner that was granted a hold just now.
    pub fn serve_holder(&mut self, owner: &[u8]) {
        self.serve_holder_of(self.store.lock(), owner);
    }

    /// Like [`LockTxn::serve`], for any lock.
    pub fn serve_queue(&mut self, lock: LockRef<'_>) {
        self.with_queue(lock, wait::serve);
    }

    /// Like [`LockTxn::serve_holder`], for any lock.
    pub fn serve_holder_of(&mut self, lock: LockRef<'_>, owner: &[u8]) {
        self.with_queue(lock, |txn, lock| wait::serve_holder(txn, lock, &owner.into()));
    }

    /// Runs `serve` if the lock has a queue and the server allows a grant.
    fn with_queue(&mut self, lock: LockRef<'_>, serve: impl FnOnce(&mut Self, &LockId)) {
        let LockTxn { engine, store, .. } = self;
        if engine.waits.is_empty() {
            return;
        }
        let Some(lock) = engine.waits.lock(&lock) else {
            return;
        };
        if engine.returns.delay_queue(&lock) {
            return;
        }
        if !store.may_grant() {
            // Nothing can be done if the lock cannot be opened.
            let _ = self.on(&lock, |LockTxn { engine, store, .. }| {
                engine.schedule_retry(store);
                Ok(())
            });
            return;
        }
        let served = guarded(|| serve(self, &lock));
        let is_panic = served.is_err();
        if is_panic {
            // A panic here must not end the command that freed the lock.
            self.engine.note_panic();
        }
        let _ = self.on(&lock, |LockTxn { engine, store, .. }| {
            if is_panic {
                engine.schedule_within(store, intervals::AFTER_PANIC);
            } else if engine.has_queue(store) {
                let mode = engine.memory.get(store.lock()).and_then(Known::mode);
                let soon = intervals::of_queue(engine.waits.queue_count(), store, mode);
                engine.schedule_within(store, soon);
            } else {
                engine.forget_if_idle(store.lock());
            }
            Ok(())
        });
    }

    /// Works on a lock: on this one, or on another one that is opened for it. It stays open for the
    /// next time. `work` must not go back to this lock.
    pub fn on<R>(
        &mut self,
        lock: &LockId,
        work: impl FnOnce(&mut LockTxn<'_, '_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if self.store.lock() == lock.get() {
            return work(self);
        }
        self.store.close_kept();
        let ctx = self.store.ctx();
        let Some(mut store) = self.open.take(ctx, lock)? else {
            let (names, key) = (OpenNames::default(), Text::new(&lock.name));
            let mut store = Store::open(ctx.in_db(lock.db), &key, Access::Write)?;
            store.allow_as(self.store);
            return work(&mut self.engine.on_store(&mut store, &names));
        };
        store.allow_as(self.store);
        let open = self.open.take_all();
        let mut txn = LockTxn { engine: self.engine, store: &mut store, open };
        let result = work(&mut txn);
        self.open = txn.open.take_all();
        self.open.put(store);
        result
    }
}

impl<'c> LockTxn<'_, 'c> {
    /// The lock, if it is open.
    fn opened(&self, lock: &LockId) -> Option<&Store<'c>> {
        match self.store.lock() == lock.get() {
            true => Some(self.store),
            false => self.open.get(lock.get()),
        }
    }
}

impl Engine {
    /// Whether the lock has waiters.
    pub(super) fn has_queue(&self, store: &Store<'_>) -> bool {
        !self.waits.is_empty() && self.waits.queue(&store.lock()).is_some()
    }

    /// Answers all waiters of the lock with an error.
    pub(super) fn fail_queue(&mut self, store: &Store<'_>, error: &Error) {
        let lock = store.lock();
        for (id, ..) in self.queue_in_order(lock) {
            if let Some(waiter) = self.waits.remove(id) {
                if waiter.is_joint() {
                    waiter.places.iter().for_each(|place| self.queue_shortened(&place.lock));
                }
                self.answer(id, waiter, Answer::Failed(error.clone()));
            }
        }
        self.forget_if_idle(lock);
    }
}

impl Holders for LockTxn<'_, '_> {
    type Lock = LockId;
    type Request = WaitRequest;

    fn waits(&self) -> &WaitList<LockId, WaitRequest> {
        &self.engine.waits
    }

    fn holding(&self, lock: &LockId) -> Holding {
        self.engine.holding(self.store.ctx(), self.opened(lock), lock)
    }

    fn is_holder(&self, lock: &LockId, owner: &OwnerId) -> bool {
        self.engine.is_holder(self.store.ctx(), self.opened(lock), lock, owner)
    }
}

impl Locks for LockTxn<'_, '_> {
    type Grant = Grants;
    type Error = Error;

    fn waits_mut(&mut self) -> &mut WaitList<LockId, WaitRequest> {
        &mut self.engine.waits
    }

    fn standing(&mut self, lock: &LockId) -> Result<(Option<Mode>, Option<OwnerId>), Error> {
        self.on(lock, |LockTxn { engine, store, .. }| {
            let reserved = store.reservation()?;
            if let Some(reserved) = &reserved {
                engine.schedule_at_end(store, reserved.end);
            }
            let known = engine.memory.get(store.lock());
            Ok((known.and_then(Known::mode), reserved.map(|by| by.owner.into())))
        })
    }

    fn attempt(&mut self, id: WaiterId) -> Attempt<Grants, Error> {
        let Some(waiter) = self.engine.waits.get(id) else {
            return Attempt::NotYet;
        };
        if is_left_behind(id) {
            return Attempt::NotYet;
        }
        let (terms, name) = (waiter.request.terms, waiter.request.name.clone());
        let places = waiter.places.clone();
        let outcome = guarded(|| {
            // It ends here: if the waiter stayed after a panic, it would be granted a second hold.
            let name = name;
            let owner = Owner::new(&name)?;
            if let [place] = places.as_slice() {
                return self.on(&place.lock, |txn| {
                    Ok(match txn.try_acquire(&owner, place.want, terms, TriedFor::Waiter)? {
                        Outcome::Granted(grant) => Some(Grants::from_elem(grant, 1)),
                        Outcome::Refused(_) => None,
                    })
                });
            }
            match self.try_joint(&owner, &places, terms, TriedFor::JointWaiter(id))? {
                JointOutcome::Granted(grants) => Ok(Some(grants)),
                JointOutcome::Refused(_) => Ok(None),
            }
        });
        match outcome {
            Ok(Ok(Some(grants))) => Attempt::Granted(grants),
            Ok(Ok(None)) => Attempt::NotYet,
            Ok(Err(error)) => Attempt::Failed(error),
            Err(_) => {
                // The request may be half granted, so it must not be tried again.
                places.iter().for_each(|place| self.engine.schedule_changed(place.lock.get()));
                Attempt::Failed(Error::Internal)
            }
        }
    }

    fn ended(&mut self, id: WaiterId, waiter: Waiter, end: Ended<Grants, Error>) {
        let answer = match end {
            Ended::Granted(grants) => Answer::Held(grants),
            Ended::Failed(error) => Answer::Failed(error),
            Ended::Deadlock(circle) => Answer::Failed(Error::Deadlock(circle)),
        };
        self.engine.answer(id, waiter, answer);
    }

    fn queue_shortened(&mut self, lock: &LockId) {
        self.engine.queue_shortened(lock);
    }
}
