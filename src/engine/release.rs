//! Releases, renews and breaks locks: UNLOCK, RENEW, FORCEUNLOCK.

use super::held::Before;
use super::schedule::Reschedule;
use super::tracking::GivenUp;
use super::transaction::LockTxn;
use super::{end_of, Engine, Error};
use crate::core::wait::Holder;
use crate::core::{self, End, Lock, Millis, Mode, Which};
use crate::ffi::{Ctx, Str};
use crate::store::{self, Forced, Owner, ReadScope, Snapshot, Store, What};

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
            let snapshot = txn.snapshot_to_release(&owner)?;
            let is_free = txn.release_to_successor(&owner, which, snapshot)?;
            txn.serve();
            Ok(is_free)
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
            end_of(txn.store, lease)?;
            let snapshot = txn.snapshot_to_renew(&owner)?;
            txn.renew(&owner, lease, snapshot)
        })
    }

    /// Runs FORCEUNLOCK. False if there was nothing to remove.
    pub fn force(&mut self, ctx: Ctx<'_>, key: &Str, only: Option<Mode>) -> Result<bool, Error> {
        self.on_lock(ctx, key, |txn| {
            let last = txn.engine.last_owner(txn.store);
            let holders = txn.engine.thrown_out(txn.store);
            let held = txn.engine.held_so_far(txn.store);
            let forced = txn.store.force(only, last.as_deref())?;
            if let Forced::Lock(holds) = forced {
                txn.engine.log_forced(txn.store, &holders, held);
                txn.engine.statistics.count_released(holds);
                txn.engine.waits.queue_changed(&txn.store.lock());
                txn.engine.waits.set_holder(&txn.store.lock(), Holder::Nobody);
                txn.store.notice(What::Released);
            }
            if forced != Forced::Nothing {
                let lock = (Before::Held, &Lock::free());
                txn.engine.remember(txn.store, lock, |_| 0, End::Never, Reschedule::Exactly);
                if let Some((owner, _)) = holders.first() {
                    txn.engine.note_last_holder(txn.store.lock(), owner);
                }
                txn.serve();
            }
            Ok(forced != Forced::Nothing)
        })
    }
}

impl LockTxn<'_, '_> {
    /// The snapshot for [`LockTxn::release_to_successor`].
    pub fn snapshot_to_release(&mut self, owner: &Owner<'_>) -> Result<Snapshot, store::Error> {
        let is_tracked = self.engine.tracked.has(self.store.lock());
        self.snapshot(owner, if is_tracked { ReadScope::Ends } else { ReadScope::Release })
    }

    /// The snapshot for [`LockTxn::renew`].
    pub fn snapshot_to_renew(&mut self, owner: &Owner<'_>) -> Result<Snapshot, store::Error> {
        self.snapshot(owner, ReadScope::Mode)
    }

    /// Like [`LockTxn::release`]. If the lock has waiters, the next writer may take over its hash.
    pub fn release_to_successor(
        &mut self,
        owner: &Owner<'_>,
        which: Which,
        snapshot: Snapshot,
    ) -> Result<bool, Error> {
        if self.engine.has_queue(self.store) {
            self.store.await_successor();
        }
        self.release(owner, which, snapshot)
    }

    /// Runs UNLOCK, without serving the queue.
    fn release(
        &mut self,
        owner: &Owner<'_>,
        which: Which,
        snapshot: Snapshot,
    ) -> Result<bool, Error> {
        let reserved = which == Which::All && is_reserved_by(self.store, owner);
        let after = match self.give_back(owner, which, snapshot) {
            // The owner has no hold, only a reservation.
            Err(Error::NotHeld(_)) if reserved => self.snapshot(owner, ReadScope::Presence)?.lock,
            after => {
                let after = after?;
                self.store.notice(What::Released);
                after
            }
        };
        if reserved {
            self.store.consume_reservation();
        }
        Ok(after.is_free())
    }

    /// Runs RENEW. `lease` is in ms.
    pub fn renew(
        &mut self,
        owner: &Owner<'_>,
        lease: Millis,
        snapshot: Snapshot,
    ) -> Result<(), Error> {
        let lease = end_of(self.store, lease)?;
        let after = core::renew(&snapshot.lock, lease);
        let after = self.if_held(&snapshot, owner, after)?;
        self.commit(&snapshot, owner, &after)
    }

    fn give_back(
        &mut self,
        owner: &Owner<'_>,
        which: Which,
        snapshot: Snapshot,
    ) -> Result<Lock, Error> {
        let is_tracked = self.engine.tracked.has(self.store.lock());
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
