//! Circles of owners that wait for each other: who holds the locks, for the search in
//! `core/wait`.

use super::pass::Pass;
use super::state::{Answer, LockId, WaitRequest};
use super::{Engine, Error};
use crate::core::wait::{circle_through, suspects, Holders, Holding, WaitList};
use crate::core::{Mode, OwnerId};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, Store};

impl Engine {
    /// Breaks the circles among those who wait already: it was not looked for
    /// them, or they wait for others now.
    pub(super) fn break_all_circles(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        for owner in suspects(&ClosedLocks { engine: self, ctx }) {
            while let Some(circle) = circle_through(&ClosedLocks { engine: self, ctx }, &owner) {
                let id = circle.youngest;
                let Some(waiter) = self.remove_waiter(id) else {
                    break;
                };
                let owners = circle.starting_with(&waiter.owner);
                self.answer(id, waiter, Answer::Failed(Error::Deadlock(owners)));
                // Those behind it may get in.
                self.run_timers(ctx, pass);
            }
        }
    }

    /// Who holds a lock. Of one that cannot be read nothing is known. `at_hand`: the
    /// store of a lock that is open already.
    pub(super) fn holding(
        &self,
        ctx: Ctx<'_>,
        at_hand: Option<&Store<'_>>,
        lock: &LockId,
    ) -> Holding {
        let read = |store: &Store<'_>| {
            let mode = store.mode()?;
            let waiting = self.waiting_among(store)?;
            let reserved = match mode {
                Some(Mode::Read) => store.reservation()?,
                // It changes nothing there.
                Some(Mode::Write) | None => None,
            };
            Ok(Holding { mode, reserved_by: reserved.map(|by| by.owner.into()), waiting })
        };
        if let Some(store) = at_hand.filter(|store| store.lock() == lock.get()) {
            return read(store).unwrap_or_default();
        }
        let key = Text::new(&lock.name);
        let store = Store::open(ctx.in_db(lock.db), &key, Access::Read);
        store.and_then(|store| read(&store)).unwrap_or_default()
    }

    /// The holders of a lock who wait. If it is not the one who is remembered to
    /// write, whichever are fewer are looked through: those who wait anywhere, or
    /// those who hold this.
    pub(super) fn waiting_among(&self, store: &Store<'_>) -> Result<Vec<OwnerId>, store::Error> {
        let queue = self.waits.queue(&store.lock());
        if let Some(writer) = queue.and_then(|queue| queue.writer.as_ref()) {
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

/// All locks, while none of them is at hand.
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
}
