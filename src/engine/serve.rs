//! Serves a lock's queue, and connects `core/wait` with keys and clients.

use super::acquire::{Outcome, TriedFor};
use super::intervals;
use super::state::{Answer, Grant, LockId, WaitRequest, Waiter};
use super::transaction::LockTxn;
use super::{Engine, Error};
use crate::core::wait::{self, Attempt, Ended, Holders, Holding, Locks, WaitList};
use crate::core::{Mode, OwnerId, WaiterId};
use crate::ffi::guarded;
use crate::store::{Owner, Store};

impl LockTxn<'_, '_> {
    /// Grants the waiters of the lock, as far as the rules and the server allow.
    pub fn serve(&mut self) {
        self.with_queue(wait::serve);
    }

    /// Serves the other waiters of an owner that was granted a hold just now.
    pub fn serve_holder(&mut self, owner: &[u8]) {
        self.with_queue(|txn, lock| wait::serve_holder(txn, lock, &owner.into()));
    }

    /// Runs `serve` if the lock has a queue and the server allows a grant.
    fn with_queue(&mut self, serve: impl FnOnce(&mut Self, &LockId)) {
        let LockTxn { engine, store } = self;
        if engine.waits.is_empty() {
            return;
        }
        let Some(lock) = engine.waits.lock(&store.lock()) else {
            return;
        };
        if engine.returns.delay_queue(&lock) {
            return;
        }
        if !store.may_grant() {
            engine.schedule_retry(store);
            return;
        }
        let served = guarded(|| serve(self, &lock));
        let LockTxn { engine, store } = self;
        if served.is_err() {
            // A panic here must not end the command that freed the lock.
            engine.note_panic();
            return engine.schedule_within(store, intervals::AFTER_PANIC);
        }
        if engine.has_queue(store) {
            let mode = engine.memory.get(store.lock()).and_then(|known| known.mode);
            let soon = intervals::of_queue(engine.waits.queue_count(), store, mode);
            engine.schedule_within(store, soon);
        } else {
            engine.forget_if_idle(lock.get());
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
        self.engine.holding(self.store.ctx(), Some(self.store), lock)
    }
}

impl Locks for LockTxn<'_, '_> {
    type Grant = Grant;
    type Error = Error;

    fn waits_mut(&mut self) -> &mut WaitList<LockId, WaitRequest> {
        &mut self.engine.waits
    }

    fn standing(&mut self, _: &LockId) -> Result<(Option<Mode>, Option<OwnerId>), Error> {
        let reserved = self.store.reservation()?;
        if let Some(reserved) = &reserved {
            self.engine.schedule_at_end(self.store, reserved.end);
        }
        let known = self.engine.memory.get(self.store.lock());
        Ok((known.and_then(|known| known.mode), reserved.map(|by| by.owner.into())))
    }

    fn attempt(&mut self, id: WaiterId) -> Attempt<Grant, Error> {
        let outcome = guarded(|| {
            let WaitRequest { terms, name, .. } = self.engine.waits.get(id)?.request.clone();
            let owner = Owner::new(&name).map_err(Error::from);
            Some(owner.and_then(|owner| self.try_acquire(&owner, terms, TriedFor::Waiter)))
        });
        match outcome {
            Ok(Some(Ok(Outcome::Granted(grant)))) => Attempt::Granted(grant),
            Ok(Some(Ok(Outcome::Refused(_))) | None) => Attempt::NotYet,
            Ok(Some(Err(error))) => Attempt::Failed(error),
            Err(_) => {
                // The request may be half granted, so it must not be tried again.
                self.engine.schedule_changed(self.store.lock());
                Attempt::Failed(Error::Internal)
            }
        }
    }

    fn ended(&mut self, id: WaiterId, waiter: Waiter, end: Ended<Grant, Error>) {
        let answer = match end {
            Ended::Granted(grant) => Answer::Held(grant),
            Ended::Failed(error) => Answer::Failed(error),
            Ended::Deadlock(circle) => Answer::Failed(Error::Deadlock(circle)),
        };
        self.engine.answer(id, waiter, answer);
    }

    fn queue_shortened(&mut self, lock: &LockId) {
        self.engine.queue_shortened(lock);
    }
}
