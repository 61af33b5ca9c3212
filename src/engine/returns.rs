//! Holds that the module gives back: those of connections that are gone, and grants whose
//! clients never learnt of them.

use super::intervals;
use super::pass::Pass;
use super::state::{Delivery, Hold, Session, TrackedId};
use super::tracking::Returned;
use super::{Engine, Error};
use crate::core::{self, Kind, Which};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, LockRef, Owner, ReadScope, Store, What};

impl Engine {
    /// A connection is gone.
    pub(super) fn note_disconnected(&mut self, client: u64) {
        if self.has_session(client) {
            self.returns.clients.insert(client);
        }
    }

    /// Gives back what is to be given back, for the length of a pass.
    pub(super) fn return_holds(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        self.returns.begin();
        while let Some(id) = self.next_lost() {
            self.give_back_lost(ctx, id);
            if pass.is_over() {
                break;
            }
        }
        self.serve_delayed();
    }

    /// The same of one lock, all of it: a command is about to work on it.
    pub(super) fn return_holds_of(&mut self, ctx: Ctx<'_>, lock: LockRef<'_>) {
        self.returns.begin();
        for id in self.tracked.of_lock(lock) {
            if self.is_lost(id) {
                self.give_back_lost(ctx, id);
            }
        }
        self.serve_delayed();
    }

    /// Has the queues served that were delayed while holds were given back.
    pub(super) fn serve_delayed(&mut self) {
        for lock in self.returns.end() {
            self.schedule_now(lock.get());
        }
    }

    fn next_lost(&mut self) -> Option<TrackedId> {
        while let Some(id) = self.returns.pop() {
            if self.is_lost(id) {
                return Some(id);
            }
        }
        while let Some(client) = self.returns.clients.last() {
            if let Some(id) = self.tracked.of_client(*client).next() {
                return Some(id);
            }
            self.returns.clients.pop_last();
        }
        None
    }

    /// Whether a hold is to be given back, for its client is gone.
    fn is_lost(&self, id: TrackedId) -> bool {
        self.tracked.get(id).is_some_and(|tracked| {
            let is_gone = |session: Session| self.returns.clients.contains(&session.client);
            tracked.is_lost || tracked.session.is_some_and(is_gone)
        })
    }

    /// Gives a hold back, now or when its slot is served again. It is bound to nobody
    /// from now on.
    fn give_back_lost(&mut self, ctx: Ctx<'_>, id: TrackedId) {
        // What ends in a panic is not tried again: then the hold ends with its lease.
        let given_back = self.step(|engine| engine.give_back_tracked(ctx, id));
        match given_back {
            Some(Err(Error::Store(error))) if error.is_unserved() => {
                self.bind(id, None);
                self.give_back_later(ctx, id);
            }
            _ => self.untrack(id),
        }
    }

    /// The slot is on its way, or the cluster is down: the hold is given back when
    /// that is over. Unless its keys have left.
    fn give_back_later(&mut self, ctx: Ctx<'_>, id: TrackedId) {
        let Some(tracked) = self.tracked.get(id) else {
            return;
        };
        let key = Text::new(&tracked.lock.name);
        if !store::is_here(ctx.in_db(tracked.lock.db), &key) {
            self.untrack(id);
            return;
        }
        let retry_at = self.within(ctx, intervals::REFUSED_RETURN);
        self.tracked.set_lost(id, true);
        self.returns.refuse(id, retry_at);
    }

    /// Gives back a tracked hold, if it lives.
    fn give_back_tracked(&mut self, ctx: Ctx<'_>, id: TrackedId) -> Result<(), Error> {
        let Some(tracked) = self.tracked.get(id) else {
            return Ok(());
        };
        let (key, name) = (Text::new(&tracked.lock.name), Text::new(&tracked.owner));
        let mut store = Store::open(ctx.in_db(tracked.lock.db), &key, Access::Write)?;
        let mut txn = self.on_store(&mut store);
        txn.refresh_if_due();
        let owner = Owner::new(&name)?;
        let snapshot = txn.snapshot(&owner, ReadScope::Ends)?;
        let Some(tracked) = txn.engine.tracked.get(id) else {
            return Ok(());
        };
        let is_delivered = tracked.delivery == Delivery::Delivered;
        let (kind, rank, returned) = match tracked.hold {
            Hold::Read(number) => match snapshot.rank_of(number) {
                Some(rank) => (Kind::Read, Some(rank), Returned::Read(rank)),
                None => (Kind::Read, None, Returned::Nothing),
            },
            Hold::Write if snapshot.lock.own.writes == 0 => (Kind::Write, None, Returned::Nothing),
            Hold::Write => (Kind::Write, None, Returned::Write(Some(id))),
        };
        if returned == Returned::Nothing {
            // It has lapsed.
            return txn.commit(&snapshot, &owner, &snapshot.lock);
        }
        let after = core::release(&snapshot.lock, Which::One(kind), rank)?;
        txn.commit_return(&snapshot, &owner, &after, returned)?;
        txn.store.notice(What::Released);
        if is_delivered {
            txn.engine.statistics.disconnect_releases += 1;
        }
        txn.serve();
        Ok(())
    }
}
