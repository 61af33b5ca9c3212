//! Renews session holds while their connections are open.

use super::intervals;
use super::open_locks::OpenNames;
use super::state::{Hold, Session, Tracked, TrackedId};
use super::tracking::renewal_interval;
use super::{Engine, Error};
use crate::core;
use crate::ffi::{Access, Ctx, Db, Text};
use crate::store::{self, Owner, ReadScope, Store};

impl Engine {
    /// Renews one session hold and schedules the next renewal.
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
        // Schedules the next renewal first, so that it stays scheduled if this one fails.
        let now = self.within(ctx, 0);
        let retry_in = |wait| Session { due: now.after(wait), ..session };
        self.bind(id, Some(retry_in(renewal_interval(session.lease))));
        let names = OpenNames::default();
        let mut store = match Store::open(db, &key, Access::Write) {
            Err(store::Error::TryAgain) => return self.renew_migrating(db, &key, &owner, id),
            Ok(store) if store.may_write() => store,
            // The server would refuse a RENEW now, for example because it lost its replicas.
            // Another owner may hold the lock on another node. So the renewal is tried later; if
            // this lasts, the hold ends with its lease.
            _ => {
                self.bind(
                    id,
                    Some(retry_in(renewal_interval(session.lease).min(intervals::REFUSED_RENEWAL))),
                );
                return Ok(());
            }
        };
        let lease = super::end_of(&store, session.lease)?;
        let mut txn = self.on_store(&mut store, &names);
        txn.refresh_if_due();
        let snapshot = txn.snapshot(&owner, ReadScope::Mode)?;
        let mut after = snapshot.lock.clone();
        match txn.engine.tracked.get(id).map(|tracked| tracked.hold) {
            Some(Hold::Read(number)) => {
                if let Some(rank) = snapshot.rank_of(number) {
                    after.own.reads[rank] = after.own.reads[rank].max(lease);
                    after.lengthen(lease);
                }
            }
            Some(Hold::Write) if after.own.writes > 0 => after.lengthen(lease),
            Some(Hold::Write) | None => {}
        }
        // A hold that has lapsed leaves the tracked holds in this commit.
        txn.commit(&snapshot, &owner, &after)
    }

    /// Renews a session hold while its slot moves to another node. A hold whose keys have moved
    /// already cannot be renewed here: it ends with its lease.
    fn renew_migrating(
        &self,
        db: Db<'_>,
        key: &Text,
        owner: &Owner<'_>,
        id: TrackedId,
    ) -> Result<(), Error> {
        let tracked = self.tracked.get(id);
        let hold_and_lease =
            tracked.and_then(|tracked| Some((tracked.hold, tracked.session?.lease)));
        if let (Some((hold, lease)), Some(mut store)) =
            (hold_and_lease, Store::on_its_way(db, key)?)
        {
            let number = match hold {
                Hold::Read(number) => Some(number),
                Hold::Write => None,
            };
            let end = super::end_of(&store, lease)?;
            store.lengthen(owner, number, end)?;
        }
        Ok(())
    }

    /// Gives a session hold the lease of the DOWNGRADE that changed it, and schedules its next
    /// renewal.
    pub(super) fn renew_downgraded(&mut self, ctx: Ctx<'_>, id: TrackedId, lease: core::Millis) {
        let Some(Tracked { hold: Hold::Read(_), session, .. }) = self.tracked.get(id) else {
            return;
        };
        if let Some(session) = *session {
            let due = self.within(ctx, renewal_interval(lease));
            self.bind(id, Some(Session { lease, due, ..session }));
        }
    }
}
