//! Gives the search for circles in `core/wait` the holders of a lock, and breaks circles of
//! waiters.

use super::pass::Pass;
use super::state::{Answer, LockId, WaitRequest};
use super::{Engine, Error};
use crate::core::wait::{circle_through, suspects, Holders, Holding, WaitList};
use crate::core::{Mode, OwnerId};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, Store};

impl Engine {
    /// Breaks the circles among waiters. Needed after a setting has changed: no search ran for
    /// these waiters, or the new policy makes them wait for other owners.
    pub(super) fn break_all_circles(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        for owner in suspects(&ClosedLocks { engine: self, ctx }) {
            while let Some(circle) = circle_through(&ClosedLocks { engine: self, ctx }, &owner) {
                let id = circle.youngest;
                let Some(waiter) = self.remove_waiter(id) else {
                    break;
                };
                let owners = circle.starting_with(&waiter.owner);
                self.answer(id, waiter, Answer::Failed(Error::Deadlock(owners)));
                // The waiters behind the removed one may be granted now. That can break other
                // circles.
                self.run_timers(ctx, pass);
            }
        }
    }

    /// The holders of a lock, for the search for circles. A lock that cannot be read counts as
    /// free. `opened`: the lock, if it is open already.
    pub(super) fn holding(
        &self,
        ctx: Ctx<'_>,
        opened: Option<&Store<'_>>,
        lock: &LockId,
    ) -> Holding {
        let read = |store: &Store<'_>| {
            let mode = store.mode()?;
            let waiting = self.waiting_among(store)?;
            let reserved = match mode {
                Some(Mode::Read) => store.reservation()?,
                // The search uses a reservation only in read mode, where it holds readers up.
                Some(Mode::Write) | None => None,
            };
            Ok(Holding {
                mode,
                reserved_by: reserved.map(|reserved| reserved.owner.into()),
                waiting,
            })
        };
        if let Some(store) = opened {
            return read(store).unwrap_or_default();
        }
        let key = Text::new(&lock.name);
        let store = Store::open(ctx.in_db(lock.db), &key, Access::Read);
        store.and_then(|store| read(&store)).unwrap_or_default()
    }

    /// Whether an owner has a live hold on a lock. A lock that cannot be read counts as free.
    pub(super) fn is_holder(
        &self,
        ctx: Ctx<'_>,
        opened: Option<&Store<'_>>,
        lock: &LockId,
        owner: &OwnerId,
    ) -> bool {
        if let Some(store) = opened {
            return store.is_held_by(owner).unwrap_or(false);
        }
        let key = Text::new(&lock.name);
        let store = Store::open(ctx.in_db(lock.db), &key, Access::Read);
        store.and_then(|store| store.is_held_by(owner)).unwrap_or(false)
    }

    /// The holders of a lock that are also waiters of any lock. If the queue knows the only
    /// holder, the answer is immediate. Otherwise this checks the shorter list: all waiting
    /// owners, or all holders of the lock.
    pub(super) fn waiting_among(&self, store: &Store<'_>) -> Result<Vec<OwnerId>, store::Error> {
        let queue = self.waits.queue(&store.lock());
        if let Some(writer) = queue.and_then(|queue| queue.only_holder()) {
            if store.has_sole_writer(writer)? {
                return Ok(self.waits.owner(writer).into_iter().cloned().collect());
            }
        }
        if self.waits.owners().len() > store.field_count() {
            return store.live_owners(|owner| self.waits.owner(owner).cloned());
        }
        let mut holders = Vec::new();
        for owner in self.waits.owners() {
            if store.is_held_by(owner)? {
                holders.push(owner.clone());
            }
        }
        Ok(holders)
    }
}

/// All locks, when none of them is open.
struct ClosedLocks<'e, 'c> {
    engine: &'e Engine,
    ctx: Ctx<'c>,
}

impl Holders for ClosedLocks<'_, '_> {
    type Lock = LockId;
    type Request = WaitRequest;

    fn waits(&self) -> &WaitList<LockId, WaitRequest> {
        &self.engine.waits
    }

    fn holding(&self, lock: &LockId) -> Holding {
        self.engine.holding(self.ctx, None, lock)
    }

    fn is_holder(&self, lock: &LockId, owner: &OwnerId) -> bool {
        self.engine.is_holder(self.ctx, None, lock, owner)
    }
}
