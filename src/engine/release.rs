//! Releases, renews and breaks locks: UNLOCK, RENEW, FORCEUNLOCK.

use super::schedule::Reschedule;
use super::tracking::GivenUp;
use super::transaction::LockTxn;
use super::{end_of, Engine, Error};
use crate::core::{self, End, Lock, Millis, Mode, Which};
use crate::ffi::{Ctx, Str};
use crate::store::{Forced, Owner, ReadScope, Store, What};

impl Engine {
    /// Runs UNLOCK. Fails with NOTHELD if the owner has nothing to release. True if the lock had no
    /// holds after the release; a waiter may hold it by now.
    pub fn release(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        owner: &Str,
        which: Which,
    ) -> Result<bool, Error> {
        let owner = Owner::new(owner)?;
        self.on_lock(ctx, key, |txn| {
            if txn.engine.has_queue(txn.store) {
                txn.store.await_successor();
            }
            let reserved = which == Which::All && is_reserved_by(txn.store, &owner);
            let after = match txn.give_back(&owner, which) {
                // The owner has no hold, only a reservation.
                Err(Error::NotHeld(_)) if reserved => {
                    txn.snapshot(&owner, ReadScope::Presence)?.lock
                }
                after => {
                    let after = after?;
                    txn.store.notice(What::Released);
                    after
                }
            };
            if reserved {
                txn.store.consume_reservation();
            }
            txn.serve();
            Ok(after.is_free())
        })
    }

    /// Runs RENEW. `lease` is in ms. Fails with NOTHELD if the owner has no live hold.
    pub fn renew(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        owner: &Str,
        lease: Millis,
    ) -> Result<(), Error> {
        let owner = Owner::new(owner)?;
        self.on_lock(ctx, key, |txn| {
            let lease = end_of(txn.store, lease)?;
            let snapshot = txn.snapshot(&owner, ReadScope::Mode)?;
            let after = core::renew(&snapshot.lock, lease);
            let after = txn.if_held(&snapshot, &owner, after)?;
            txn.commit(&snapshot, &owner, &after)
        })
    }

    /// Runs FORCEUNLOCK. False if there was nothing to remove.
    pub fn force(&mut self, ctx: Ctx<'_>, key: &Str, only: Option<Mode>) -> Result<bool, Error> {
        self.on_lock(ctx, key, |txn| {
            let last = txn.engine.last_owner(txn.store);
            let forced = txn.store.force(only, last.as_deref())?;
            if let Forced::Lock(holds) = forced {
                txn.engine.statistics.count_released(holds);
                txn.store.notice(What::Released);
            }
            if forced != Forced::Nothing {
                txn.engine.remember(
                    txn.store,
                    &Lock::free(),
                    |_| 0,
                    End::Never,
                    Reschedule::Exactly,
                );
                txn.serve();
            }
            Ok(forced != Forced::Nothing)
        })
    }
}

impl LockTxn<'_, '_> {
    fn give_back(&mut self, owner: &Owner<'_>, which: Which) -> Result<Lock, Error> {
        let is_tracked = self.engine.tracked.has(self.store.lock());
        let scope = if is_tracked { ReadScope::Ends } else { ReadScope::Release };
        let snapshot = self.snapshot(owner, scope)?;
        let given_up = match is_tracked {
            true => self.engine.choose_released(self.store, owner.bytes(), &snapshot, which),
            false => GivenUp::Nothing,
        };
        let rank = match given_up {
            GivenUp::Read(rank) => Some(rank),
            _ => None,
        };
        let after = core::release(&snapshot.lock, which, rank);
        let after = self.if_held(&snapshot, owner, after)?;
        self.commit_giving_up(&snapshot, owner, &after, given_up)?;
        self.engine.statistics.count_released(snapshot.lock.own.count() - after.own.count());
        Ok(after)
    }
}

/// Whether the owner has the reservation. A reservation key without an owner does not stop a
/// release, so that error counts as "no".
fn is_reserved_by(store: &Store<'_>, owner: &Owner<'_>) -> bool {
    let reserved = store.reservation().unwrap_or_default();
    reserved.is_some_and(|reserved| reserved.owner == owner.bytes())
}
