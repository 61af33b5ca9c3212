//! Holds that the module gives back: those of connections that are gone, and grants whose
//! clients never learnt of them.

use super::clock::Moment;
use super::intervals;
use super::memory::LockId;
use super::pass::Pass;
use super::tracked::{Delivery, Hold, Session, TrackedId};
use super::tracking::Returned;
use super::{Engine, Error};
use crate::core::{self, Kind, Which};
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, LockRef, Owner, ReadScope, Store, What};
use std::collections::BTreeSet;

/// What is to be given back.
#[derive(Default)]
pub(super) struct Returns {
    /// Connections that are gone, and what was bound to them with them.
    pub clients: BTreeSet<u64>,
    /// Single holds.
    holds: Vec<TrackedId>,
    /// Those that could not be given back when it was tried.
    refused: Vec<TrackedId>,
    /// When these are tried again.
    retry_at: Moment,
    /// Whether holds are being given back. No queue is served meanwhile: a hold that is
    /// still to be given back would let its owner's waiters in.
    is_under_way: bool,
    /// The locks whose queues are served after that.
    freed: Vec<LockId>,
}

impl Returns {
    /// Adds a hold.
    pub fn add(&mut self, id: TrackedId) {
        self.holds.push(id);
    }

    /// Whether anything is to be given back now.
    pub fn has_some(&self) -> bool {
        !self.holds.is_empty() || !self.clients.is_empty()
    }

    /// Whether anything is to be given back, now or later.
    pub fn has_any(&self) -> bool {
        self.has_some() || !self.refused.is_empty()
    }

    /// When to try again what could not be given back.
    pub fn retry_at(&self) -> Option<Moment> {
        (!self.refused.is_empty()).then_some(self.retry_at)
    }

    /// Moves what could not be given back to what is to be, when it is time.
    pub fn retry(&mut self, now: Moment) {
        if now > self.retry_at {
            self.holds.append(&mut self.refused);
        }
    }

    /// Whether a lock's queue has to wait until all is given back. It is served then.
    pub fn delay(&mut self, lock: &LockId) -> bool {
        if self.is_under_way && self.freed.last() != Some(lock) {
            self.freed.push(lock.clone());
        }
        self.is_under_way
    }

    /// Work that a panic has ended delays nobody.
    pub fn reset(&mut self) {
        self.is_under_way = false;
    }
}

impl Engine {
    /// A connection is gone.
    pub(super) fn note_disconnected(&mut self, client: u64) {
        if self.has_session(client) {
            self.returns.clients.insert(client);
        }
    }

    /// Gives back what is to be given back, for the length of a pass.
    pub(super) fn return_holds(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        self.returns.is_under_way = true;
        while let Some(id) = self.next_lost() {
            self.give_back_lost(ctx, id);
            if pass.is_over() {
                break;
            }
        }
        self.serve_freed();
    }

    /// The same of one lock, all of it: a command is about to work on it.
    pub(super) fn return_holds_of(&mut self, ctx: Ctx<'_>, lock: LockRef<'_>) {
        self.returns.is_under_way = true;
        for id in self.tracked.of_lock(lock) {
            if self.is_lost(id) {
                self.give_back_lost(ctx, id);
            }
        }
        self.serve_freed();
    }

    /// Has the queues served that were delayed while holds were given back.
    fn serve_freed(&mut self) {
        self.returns.is_under_way = false;
        for lock in std::mem::take(&mut self.returns.freed) {
            self.schedule_now(lock.get());
        }
    }

    fn next_lost(&mut self) -> Option<TrackedId> {
        while let Some(id) = self.returns.holds.pop() {
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
        match self.give_back_tracked(ctx, id) {
            Err(Error::Store(error)) if error.is_unserved() => {
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
        if self.returns.refused.is_empty() {
            self.returns.retry_at = self.within(ctx, intervals::REFUSED_RETURN);
        }
        self.tracked.set_lost(id, true);
        self.returns.refused.push(id);
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
