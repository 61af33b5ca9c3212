//! Returns holds: those of closed connections, and grants whose answers were lost.

use super::intervals;
use super::open_locks::OpenNames;
use super::pass::Pass;
use super::state::{Delivery, Grant, Hold, LockId, Session, TrackedId};
use super::tracking::GivenUp;
use super::{Engine, Error};
use crate::core::{self, Kind, Which};
use crate::ffi::{Access, Ctx, Text};
use crate::planted::{is_planted, Bug};
use crate::store::{self, LockRef, Owner, ReadScope, Store, What};

impl Engine {
    /// A connection closed: its session holds are to be returned.
    pub(super) fn note_disconnected(&mut self, client: u64) {
        if self.has_session(client) {
            self.returns.closed_clients.insert(client);
        }
    }

    /// Has the module return a hold that was granted just now.
    pub(super) fn return_hold(&mut self, lock: &LockId, owner: &[u8], grant: &Grant) {
        let add = || self.tracked.add(lock.clone(), owner.into(), grant.hold);
        let id = grant.tracked.unwrap_or_else(add);
        self.tracked.set_lost(id, true);
        self.returns.add(id);
    }

    /// Returns holds until none is ready or the pass is over.
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

    /// Returns all holds of one lock that are to be returned. Runs before a command works on that
    /// lock.
    pub(super) fn return_holds_of(&mut self, ctx: Ctx<'_>, lock: LockRef<'_>) {
        self.returns.begin();
        for id in self.tracked.of_lock(lock) {
            if self.is_lost(id) {
                self.give_back_lost(ctx, id);
            }
        }
        self.serve_delayed();
    }

    /// Schedules the queues that were delayed while holds were returned.
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
        while let Some(client) = self.returns.closed_clients.last() {
            if let Some(id) = self.tracked.of_client(*client).next() {
                return Some(id);
            }
            self.returns.closed_clients.pop_last();
        }
        None
    }

    /// Whether a hold is to be returned, because its answer was lost or its connection closed.
    fn is_lost(&self, id: TrackedId) -> bool {
        self.tracked.get(id).is_some_and(|tracked| {
            let is_closed =
                |session: Session| self.returns.closed_clients.contains(&session.client);
            tracked.is_lost || tracked.session.is_some_and(is_closed)
        })
    }

    /// Returns a hold, or schedules another try if its slot is not served. The hold is bound to no
    /// connection afterwards.
    fn give_back_lost(&mut self, ctx: Ctx<'_>, id: TrackedId) {
        // A return that ends in a panic is not tried again: the hold ends with its lease.
        let given_back = self.step(|engine| engine.give_back_tracked(ctx, id));
        match given_back {
            Some(Err(Error::Store(error))) if error.is_unserved() => {
                self.bind(id, None);
                self.give_back_later(ctx, id);
            }
            _ => self.untrack(id),
        }
    }

    /// Schedules another try for a hold whose slot moves or whose cluster is down. If the lock's
    /// hash is not on this node any more, the hold is dropped from tracking instead.
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
        self.returns.add_failed(id, retry_at);
    }

    /// Returns a tracked hold, if it is live. Otherwise removes what has lapsed.
    fn give_back_tracked(&mut self, ctx: Ctx<'_>, id: TrackedId) -> Result<(), Error> {
        let Some(tracked) = self.tracked.get(id) else {
            return Ok(());
        };
        let (key, name) = (Text::new(&tracked.lock.name), Text::new(&tracked.owner));
        let names = OpenNames::default();
        let mut store = Store::open(ctx.in_db(tracked.lock.db), &key, Access::Write)?;
        let mut txn = self.on_store(&mut store, &names);
        txn.refresh_if_due();
        let owner = Owner::new(&name)?;
        let snapshot = txn.snapshot(&owner, ReadScope::Ends)?;
        let Some(tracked) = txn.engine.tracked.get(id) else {
            return Ok(());
        };
        let is_delivered = tracked.delivery == Delivery::Delivered;
        let client = tracked.session.map_or(0, |session| session.client);
        let (kind, rank, given_up) = match tracked.hold {
            Hold::Read(number) => match snapshot.rank_of(number) {
                Some(rank) => (Kind::Read, Some(rank), GivenUp::Read(rank)),
                None => (Kind::Read, None, GivenUp::Nothing),
            },
            Hold::Write if snapshot.lock.own.writes == 0 => (Kind::Write, None, GivenUp::Nothing),
            Hold::Write => (Kind::Write, None, GivenUp::Write(Some(id))),
        };
        if given_up == GivenUp::Nothing {
            // The hold has lapsed: the commit removes it.
            return txn.commit(&snapshot, &owner, &snapshot.lock);
        }
        let mut after = core::release(&snapshot.lock, Which::One(kind), rank)?;
        if is_planted(Bug::ReleasedTwice) {
            after = core::release(&after, Which::Any, None).unwrap_or(after);
        }
        txn.commit_giving_up(&snapshot, &owner, &after, given_up)?;
        txn.store.notice(What::Released);
        if is_delivered {
            txn.engine.statistics.disconnect_releases += 1;
            txn.engine.log_session(txn.store, owner.bytes(), kind, client);
        }
        txn.serve();
        Ok(())
    }
}
