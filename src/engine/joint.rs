//! Several locks in one step: MLOCK, MUNLOCK, MRENEW.
//!
//! The first lock is the transaction's own. The others are read and written by [`LockTxn::on`],
//! which keeps them open. Nothing is written before all locks have been read and every check has
//! passed.

use super::acquire::{session_client, Decision, Plan, Refused, TriedFor};
use super::request::{Acquired, JointRequest, Terms};
use super::state::{Grant, Grants, LockId};
use super::transaction::LockTxn;
use super::wait::latest;
use super::{end_of, Engine, Error};
use crate::core::wait::Place;
use crate::core::{self, End, Joint, Lock, Millis, Refusal, WaiterId, Want, Which};
use crate::ffi::{guarded, Access, Ctx, Str};
use crate::planted::{is_planted, Bug};
use crate::store::{self, Owner, Snapshot, Store};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// The locks of a joint request, in its order.
type Places = SmallVec<[Place<LockId>; 1]>;

/// The result of one try to acquire several locks.
pub(super) enum JointOutcome {
    Granted(Grants),
    /// Nothing was written. For each lock how it stands; for a waiter only the first that is
    /// refused.
    Refused(Vec<Standing>),
}

/// How one lock of a refused request stands.
pub(super) struct Standing {
    /// The lock as the owner sees it.
    lock: Lock,
    /// None: this lock alone would be granted.
    refused: Option<Obstacle>,
}

/// What keeps a request from a lock.
struct Obstacle {
    refusal: Refusal,
    /// The ms until it ends at the latest; None: it never ends by itself.
    remaining: Option<Millis>,
    /// The end of the reservation on the lock, if there is one.
    reserved: Option<End>,
}

impl Engine {
    /// Runs MLOCK. A request that has to wait enters the queues of all its locks, and then `block`
    /// blocks its client. Errors: those of each lock, and [`store::Error::Clash`] if two of the
    /// names share keys.
    pub fn acquire_joint(
        &mut self,
        ctx: Ctx<'_>,
        request: &JointRequest<'_>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let owner = Owner::new(request.owner)?;
        let session = request.session.then(|| session_client(ctx)).transpose()?;
        let keys: Vec<&Str> = request.places.iter().map(|(key, _)| *key).collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| key.bytes()).collect();
        store::check_together(&names)?;
        self.on_locks(ctx, &keys, |txn| txn.acquire_joint(&owner, request, session, block))
    }

    /// Runs MUNLOCK. For each lock: true: it had no holds after the release; None: the owner had
    /// no such live hold. Everything is released first, then the queues are served.
    pub fn release_joint(
        &mut self,
        ctx: Ctx<'_>,
        owner: &Str,
        places: &[(&Str, Which)],
    ) -> Result<Vec<Option<bool>>, Error> {
        let owner = Owner::new(owner)?;
        let keys: Vec<&Str> = places.iter().map(|(key, _)| *key).collect();
        self.on_locks(ctx, &keys, |txn| {
            let locks = txn.places_of(&keys);
            let snapshot = |txn: &mut LockTxn<'_, '_>| txn.snapshot_to_release(&owner);
            let released = txn.on_each(&locks, snapshot, |txn, at, snapshot| {
                txn.release_to_successor(&owner, places[at].1, snapshot)
            })?;
            for lock in &locks {
                txn.serve_queue(lock.get());
            }
            Ok(released)
        })
    }

    /// Runs MRENEW. `lease` is in ms. For each lock whether the owner has a live hold.
    pub fn renew_joint(
        &mut self,
        ctx: Ctx<'_>,
        owner: &Str,
        lease: Millis,
        keys: &[&Str],
    ) -> Result<Vec<bool>, Error> {
        let owner = Owner::new(owner)?;
        self.on_locks(ctx, keys, |txn| {
            end_of(txn.store, lease)?;
            let locks = txn.places_of(keys);
            let snapshot = |txn: &mut LockTxn<'_, '_>| txn.snapshot_to_renew(&owner);
            let renew = |txn: &mut LockTxn<'_, '_>, _, snapshot| txn.renew(&owner, lease, snapshot);
            let renewed = txn.on_each(&locks, snapshot, renew)?;
            Ok(renewed.iter().map(Option::is_some).collect())
        })
    }

    /// Runs the work of a command on several locks. The first of them is the transaction's own.
    /// Each is first checked and brought up to date, as [`Engine::on_lock`] does for one.
    fn on_locks<R>(
        &mut self,
        ctx: Ctx<'_>,
        keys: &[&Str],
        work: impl FnOnce(&mut LockTxn<'_, '_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        for key in keys {
            Store::check(ctx.db(), key, Access::Write)?;
        }
        let Some((first, others)) = keys.split_first() else {
            return Err(Error::Internal);
        };
        if self.returns.has_any() {
            // The returns of the first are done below.
            others.iter().try_for_each(|key| self.on_lock(ctx, key, |_| Ok(())))?;
        }
        let (mut work, mut fresh) = (Some(work), 0);
        loop {
            let done = self.on_lock(ctx, first, |txn| {
                let others = txn.places_of(others);
                for (number, lock) in others.iter().enumerate().skip(fresh) {
                    if txn.on(lock, |txn| Ok(txn.is_due()))? {
                        return Ok(Err(number));
                    }
                }
                let work = work.take().ok_or(Error::Internal)?;
                work(txn).map(Ok)
            })?;
            match done {
                Ok(result) => return Ok(result),
                // A refresh serves waiters, which may need any lock. So no other lock is open
                // then.
                Err(due) => {
                    self.on_lock(ctx, others[due], |_| Ok(()))?;
                    fresh = due + 1;
                }
            }
        }
    }
}

impl LockTxn<'_, '_> {
    fn acquire_joint(
        &mut self,
        owner: &Owner<'_>,
        request: &JointRequest<'_>,
        session: Option<u64>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let JointRequest { lease, once, fence, .. } = *request;
        end_of(self.store, lease)?;
        let timeout = request.block.filter(|ms| *ms > 0);
        if timeout.is_some_and(|ms| End::of_lease(self.store.now(), ms).is_none()) {
            return Err(Error::InvalidTimeout);
        }
        let keys: Vec<&Str> = request.places.iter().map(|(key, _)| *key).collect();
        let wants = request.places.iter().map(|(_, want)| *want);
        let locks = self.places_of(&keys).into_iter();
        let places: Places = locks.zip(wants).map(|(lock, want)| Place { lock, want }).collect();
        let terms = Terms { lease, once, fence, session };
        let tried_for = TriedFor::NewRequest(Joint::of(&places));
        let standings = match self.try_joint(owner, &places, terms, tried_for)? {
            JointOutcome::Granted(grants) => {
                for Place { lock, want } in &places {
                    self.serve_holder_of(lock.get(), owner.bytes());
                    if core::lets_others_in(*want, self.engine.settings.policy) {
                        self.serve_queue(lock.get());
                    }
                }
                return Ok(Acquired::held(&grants));
            }
            JointOutcome::Refused(standings) => standings,
        };
        if request.block.is_some() && self.store.ctx().situation().may_block {
            return self.wait_joint(owner, places, terms, timeout, &standings, block);
        }
        Ok(Acquired::Refused(remaining(&standings)))
    }

    /// Tries to acquire all locks. Writes either all holds or nothing.
    pub fn try_joint(
        &mut self,
        owner: &Owner<'_>,
        places: &[Place<LockId>],
        terms: Terms,
        tried_for: TriedFor,
    ) -> Result<JointOutcome, Error> {
        let is_waiter = !matches!(tried_for, TriedFor::NewRequest(_));
        let mut plans: Vec<Plan> = Vec::with_capacity(places.len());
        let mut standings = Vec::new();
        for Place { lock, want } in places {
            match self.on(lock, |txn| txn.decide_joint(owner, *want, terms, tried_for))? {
                Ok(plan) => plans.push(plan),
                Err(refused) if is_waiter => return Ok(JointOutcome::Refused(vec![refused])),
                Err(refused) => {
                    // The order of the locks stays: those before this one come first.
                    standings.extend(plans.drain(..).map(|plan| free_to_have(plan.snapshot.lock)));
                    standings.push(refused);
                }
            }
        }
        if !standings.is_empty() {
            standings.extend(plans.drain(..).map(|plan| free_to_have(plan.snapshot.lock)));
            return Ok(JointOutcome::Refused(standings));
        }
        let mut grants = Grants::new();
        for (Place { lock, want }, plan) in places.iter().zip(&plans) {
            if is_planted(Bug::HalfASet) && is_waiter && 2 * grants.len() >= places.len() {
                grants.extend(grants.first().cloned());
                continue;
            }
            let written = guarded(|| self.on(lock, |txn| txn.carry_out(owner, *want, terms, plan)));
            match written {
                Ok(Ok(grant)) => grants.push(grant),
                failed => {
                    // Every check has passed, so this is a fault. No part of the request may stay.
                    self.return_grants(owner, places, &grants);
                    self.engine.schedule_changed(lock.get());
                    return Err(failed.map_or(Error::Internal, |error| match error {
                        Err(error) => error,
                        Ok(_) => Error::Internal,
                    }));
                }
            }
        }
        Ok(JointOutcome::Granted(grants))
    }

    fn decide_joint(
        &mut self,
        owner: &Owner<'_>,
        want: Want,
        terms: Terms,
        tried_for: TriedFor,
    ) -> Result<Result<Plan, Standing>, Error> {
        match self.decide(owner, want, terms, tried_for)? {
            Decision::Granted(plan) => {
                self.store.check_commit(&plan.snapshot, owner, &plan.after)?;
                Ok(Ok(plan))
            }
            Decision::Refused(refused, _) => {
                let remaining = refused.remaining(self.store);
                let Refused { lock, refusal, reserved, .. } = refused;
                let reserved = reserved.map(|reserved| reserved.end);
                Ok(Err(Standing { lock, refused: Some(Obstacle { refusal, remaining, reserved }) }))
            }
        }
    }

    /// Has new holds returned by the module, after the request that they belong to has failed.
    fn return_grants(&mut self, owner: &Owner<'_>, places: &[Place<LockId>], grants: &[Grant]) {
        for (Place { lock, .. }, grant) in places.iter().zip(grants) {
            if grant.is_new {
                self.engine.return_hold(lock, owner.bytes(), grant);
            }
        }
    }

    fn wait_joint(
        &mut self,
        owner: &Owner<'_>,
        places: Places,
        terms: Terms,
        timeout: Option<Millis>,
        standings: &[Standing],
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let snapshots: Vec<Lock> = standings.iter().map(|standing| standing.lock.clone()).collect();
        let locks: Vec<LockId> = places.iter().map(|place| place.lock.clone()).collect();
        let wants: SmallVec<[Want; 1]> = places.iter().map(|place| place.want).collect();
        let Some(id) = self.enter(owner, places, &snapshots, terms, timeout, block)? else {
            return Ok(Acquired::Refused(remaining(standings)));
        };
        let obstacles = || standings.iter().map(|standing| standing.refused.as_ref());
        let all = locks.iter().zip(wants).zip(standings);
        for ((lock, want), Standing { lock: snapshot, refused }) in all {
            let reserved = refused.as_ref().and_then(|obstacle| obstacle.reserved);
            self.on(lock, |txn| {
                txn.engine.note_committed(txn.store.lock(), owner.bytes(), snapshot);
                txn.began_to_wait(id, want, snapshot);
                txn.schedule_for_waiter(reserved);
                Ok(())
            })?;
        }
        let is_held = |obstacle: &Obstacle| obstacle.refusal == Refusal::Held;
        if !obstacles().flatten().any(is_held) {
            // It may be the waiter's turn at once.
            for (lock, _) in locks.iter().zip(obstacles()).filter(|(_, refused)| refused.is_some())
            {
                self.serve_queue(lock.get());
            }
        }
        Ok(Acquired::Waiting)
    }

    /// The locks of these names, in the database of the command.
    fn places_of(&self, keys: &[&Str]) -> Vec<LockId> {
        let db = self.store.lock().db;
        let place = |key: &&Str| self.engine.place_of(store::LockRef { db, name: key.bytes() });
        keys.iter().map(place).collect()
    }

    /// Takes a snapshot of each lock, and then works on each with its number and its snapshot. So
    /// nothing is written if one of them cannot be read. A result of None: the owner has no such
    /// live hold.
    fn on_each<R>(
        &mut self,
        locks: &[LockId],
        snapshot: impl Fn(&mut LockTxn<'_, '_>) -> Result<Snapshot, store::Error>,
        mut work: impl FnMut(&mut LockTxn<'_, '_>, usize, Snapshot) -> Result<R, Error>,
    ) -> Result<Vec<Option<R>>, Error> {
        let read = |lock| Ok::<_, Error>((lock, self.on(lock, |txn| Ok(snapshot(txn)?))?));
        let mut snapshots: HashMap<_, _> = locks.iter().map(read).collect::<Result<_, _>>()?;
        if store::may_share_keys(locks.iter().map(|lock| &*lock.name)) {
            snapshots.clear();
        }
        let mut results = Vec::with_capacity(locks.len());
        for (at, lock) in locks.iter().enumerate() {
            let result = self.on(lock, |txn| {
                // None: the lock, or one with the same keys, may have been written to since then.
                let known = snapshots.remove(lock).map_or_else(|| snapshot(txn), Ok)?;
                work(txn, at, known)
            });
            results.push(match result {
                Err(Error::NotHeld(_)) => None,
                result => Some(result?),
            });
        }
        Ok(results)
    }
}

fn free_to_have(lock: Lock) -> Standing {
    Standing { lock, refused: None }
}

/// The ms until the last obstacle ends; None: one of them never ends by itself.
fn remaining(standings: &[Standing]) -> Option<Millis> {
    let obstacles = standings.iter().filter_map(|standing| standing.refused.as_ref());
    latest(obstacles.map(|obstacle| obstacle.remaining))
}
