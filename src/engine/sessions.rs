//! Session holds while their connections are open, and when they close; and grants
//! that are taken back.

use super::bindings::{renewal, Returned};
use super::intervals;
use super::pass::Pass;
use super::tracked::{Delivery, Hold, Session, Tracked, TrackedId};
use super::{Engine, Error};
use crate::core::{self, Kind, Which};
use crate::ffi::{Access, Ctx, Db, Text};
use crate::store::{self, LockRef, Owner, Store, Survey, What};

impl Engine {
    /// Renews a session hold while its connection is open.
    pub(super) fn renew_session(&mut self, ctx: Ctx<'_>, id: TrackedId) -> Result<(), Error> {
        let Some(tracked) = self.tracked.get(id) else {
            return Ok(());
        };
        let Some(session) = tracked.session else {
            return Ok(());
        };
        let (key, name) = (Text::new(&tracked.lock.name), Text::new(&tracked.owner));
        let db = ctx.in_db(tracked.lock.db);
        let owner = Owner::new(&name)?;
        // Whatever comes of it now, it will be tried again.
        let now = self.within(ctx, 0);
        let again = |wait| Session { due: now.after(wait), ..session };
        self.bind(id, Some(again(renewal(session.lease))));
        let mut store = match Store::open(db, &key, Access::Write) {
            Err(store::Error::TryAgain) => return self.renew_on_its_way(db, &key, &owner, id),
            Ok(store) if store.may_write() => store,
            // A server that is cut off would refuse RENEW as well: somebody else may
            // hold the lock elsewhere. If that lasts, the hold ends with its lease.
            _ => {
                self.bind(id, Some(again(renewal(session.lease).min(intervals::REFUSED_RENEWAL))));
                return Ok(());
            }
        };
        let lease = super::end_of(&store, session.lease)?;
        let mut txn = self.on_store(&mut store);
        txn.catch_up();
        let seen = txn.look(&owner, Survey::Mode)?;
        let mut after = seen.lock.clone();
        match txn.engine.tracked.get(id).map(|tracked| tracked.hold) {
            Some(Hold::Read(number)) => {
                if let Some(rank) = seen.rank_of(number) {
                    after.own.reads[rank] = after.own.reads[rank].max(lease);
                    after.lengthen(lease);
                }
            }
            Some(Hold::Write) if after.own.writes > 0 => after.lengthen(lease),
            Some(Hold::Write) | None => {}
        }
        // If it has lapsed it is no longer tracked after this.
        txn.commit(&seen, &owner, &after)
    }

    /// Renews a session hold of a lock whose slot is on its way to another node. Where
    /// the hold's keys have gone already, nobody can: it ends with its lease.
    fn renew_on_its_way(
        &self,
        db: Db<'_>,
        key: &Text,
        owner: &Owner<'_>,
        id: TrackedId,
    ) -> Result<(), Error> {
        let tracked = self.tracked.get(id);
        let renewed = tracked.and_then(|tracked| Some((tracked.hold, tracked.session?.lease)));
        if let (Some((hold, lease)), Some(store)) = (renewed, Store::on_its_way(db, key)?) {
            let number = match hold {
                Hold::Read(number) => Some(number),
                Hold::Write => None,
            };
            store.lengthen(owner, number, super::end_of(&store, lease)?)?;
        }
        Ok(())
    }

    /// The DOWNGRADE of a session hold gave it another lease.
    pub(super) fn renew_downgraded(&mut self, ctx: Ctx<'_>, id: TrackedId, lease: core::Millis) {
        let Some(Tracked { hold: Hold::Read(_), session, .. }) = self.tracked.get(id) else {
            return;
        };
        if let Some(session) = *session {
            let due = self.within(ctx, renewal(lease));
            self.bind(id, Some(Session { lease, due, ..session }));
        }
    }

    /// A connection is gone.
    pub(super) fn note_disconnected(&mut self, client: u64) {
        if self.has_session(client) {
            self.gone_clients.insert(client);
        }
    }

    /// Whether anything is to be given back that nobody will.
    pub(super) fn has_to_clear_up(&self) -> bool {
        !self.gone.is_empty() || !self.gone_clients.is_empty()
    }

    /// Gives back what was held by connections that are gone, and what was
    /// granted to those that never learnt of it, for the length of a pass.
    pub(super) fn clear_up(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        self.gives_back = true;
        while let Some(id) = self.next_lost() {
            self.give_back_lost(ctx, id);
            if pass.is_over() {
                break;
            }
        }
        self.serve_freed();
    }

    /// The same of one lock, all of it: somebody is about to look at it.
    pub(super) fn clear_up_lock(&mut self, ctx: Ctx<'_>, lock: LockRef<'_>) {
        self.gives_back = true;
        for id in self.tracked.of_lock(lock) {
            if self.is_lost(id) {
                self.give_back_lost(ctx, id);
            }
        }
        self.serve_freed();
    }

    /// Has those served who were not while holds were given back.
    fn serve_freed(&mut self) {
        self.gives_back = false;
        for lock in std::mem::take(&mut self.freed) {
            self.serve_now(lock.get());
        }
    }

    fn next_lost(&mut self) -> Option<TrackedId> {
        while let Some(id) = self.gone.pop() {
            if self.is_lost(id) {
                return Some(id);
            }
        }
        while let Some(client) = self.gone_clients.last() {
            if let Some(id) = self.tracked.of_client(*client).next() {
                return Some(id);
            }
            self.gone_clients.pop_last();
        }
        None
    }

    /// Whether a hold is to be given back, for its client is gone.
    fn is_lost(&self, id: TrackedId) -> bool {
        self.tracked.get(id).is_some_and(|tracked| {
            let is_gone = |session: Session| self.gone_clients.contains(&session.client);
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
        if self.not_yet.is_empty() {
            self.not_yet_due = self.within(ctx, intervals::REFUSED_RETURN);
        }
        self.tracked.set_lost(id, true);
        self.not_yet.push(id);
    }

    /// Moves the holds that could not be given back to those that are to be, when it
    /// is time.
    pub(super) fn try_to_give_back(&mut self, pass: &Pass) {
        if pass.now > self.not_yet_due {
            self.gone.append(&mut self.not_yet);
        }
    }

    /// Gives back a tracked hold, if it lives.
    fn give_back_tracked(&mut self, ctx: Ctx<'_>, id: TrackedId) -> Result<(), Error> {
        let Some(tracked) = self.tracked.get(id) else {
            return Ok(());
        };
        let (key, name) = (Text::new(&tracked.lock.name), Text::new(&tracked.owner));
        let mut store = Store::open(ctx.in_db(tracked.lock.db), &key, Access::Write)?;
        let mut txn = self.on_store(&mut store);
        txn.catch_up();
        let owner = Owner::new(&name)?;
        let seen = txn.look(&owner, Survey::Ends)?;
        let Some(tracked) = txn.engine.tracked.get(id) else {
            return Ok(());
        };
        let told = tracked.delivery == Delivery::Told;
        let (kind, rank, returned) = match tracked.hold {
            Hold::Read(number) => match seen.rank_of(number) {
                Some(rank) => (Kind::Read, Some(rank), Returned::Read(rank)),
                None => (Kind::Read, None, Returned::Nothing),
            },
            Hold::Write if seen.lock.own.writes == 0 => (Kind::Write, None, Returned::Nothing),
            Hold::Write => (Kind::Write, None, Returned::Write(Some(id))),
        };
        if returned == Returned::Nothing {
            // It has lapsed.
            return txn.commit(&seen, &owner, &seen.lock);
        }
        let after = core::release(&seen.lock, Which::One(kind), rank)?;
        txn.commit_return(&seen, &owner, &after, returned)?;
        txn.store.notice(What::Released);
        if told {
            txn.engine.figures.disconnect_releases += 1;
        }
        txn.serve();
        Ok(())
    }
}
