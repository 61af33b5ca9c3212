//! Acquires holds and changes their kind: RLOCK, WLOCK, UPGRADE, DOWNGRADE.

use super::request::{AcquireRequest, Acquired, Terms};
use super::state::Grant;
use super::tracking::GivenUp;
use super::transaction::LockTxn;
use super::{end_of, Engine, Error};
use crate::core::{
    self, End, Joint, Lock, Millis, Refusal, RequestError, Reservation, Token, Verdict, WaiterId,
    Want,
};
use crate::ffi::{Ctx, Str};
use crate::store::{Owner, ReadScope, Reserved, Snapshot, Store, What};

/// The result of one try to acquire a hold.
pub(super) enum Outcome {
    Granted(Grant),
    Refused(Refused),
}

/// The decision about a request. Nothing is written yet.
pub(super) enum Decision {
    Granted(Plan),
    Refused(Refused, Snapshot),
}

/// A request that is to be granted.
pub(super) struct Plan {
    pub snapshot: Snapshot,
    /// The lock after the grant.
    pub after: Lock,
    reservation: Reservation,
    /// The read hold that ONCE lengthens.
    once_rank: Option<usize>,
    token: Option<Token>,
}

/// A refused request and the reason for the refusal.
pub(super) struct Refused {
    /// The lock as the owner sees it in the snapshot.
    pub lock: Lock,
    pub refusal: Refusal,
    /// The reservation on the lock, if there is one. `reservation` says what it means for this
    /// owner.
    pub reserved: Option<Reserved>,
    pub reservation: Reservation,
}

impl Engine {
    /// Runs RLOCK, WLOCK and UPGRADE. A request that has to wait enters the queue, and then `block`
    /// blocks its client. Fails with DEADLOCK if it would wait for itself. `block` returns false if
    /// the server does not let the client block; the request then leaves the queue and is refused.
    pub fn acquire(
        &mut self,
        ctx: Ctx<'_>,
        request: &AcquireRequest<'_>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let owner = Owner::new(request.owner)?;
        let session = request.session.then(|| session_client(ctx)).transpose()?;
        self.on_lock(ctx, request.key, |txn| txn.acquire(&owner, request, session, block))
    }

    /// Runs DOWNGRADE. `lease` is in ms. Fails with NOTHELD if the owner has no live write hold.
    pub fn downgrade(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        owner: &Str,
        lease: Millis,
    ) -> Result<(), Error> {
        let owner = Owner::new(owner)?;
        self.on_lock(ctx, key, |txn| {
            let end = end_of(txn.store, lease)?;
            let snapshot = txn.snapshot(&owner, ReadScope::Ends)?;
            let after = core::downgrade(&snapshot.lock, end);
            let after = txn.if_held(&snapshot, &owner, after)?;
            let given_up = txn.engine.choose_downgraded(txn.store, owner.bytes(), &snapshot);
            txn.commit_giving_up(&snapshot, &owner, &after, given_up)?;
            if let GivenUp::Downgraded(Some(id)) = given_up {
                txn.engine.renew_downgraded(ctx, id, lease);
            }
            txn.engine.rely_on_highest(txn.store, &snapshot, &owner, &after);
            txn.store.notice(What::Released);
            txn.engine.statistics.count_released(snapshot.lock.own.writes);
            txn.serve();
            Ok(())
        })
    }
}

impl LockTxn<'_, '_> {
    /// Runs RLOCK, WLOCK and UPGRADE on the open lock.
    fn acquire(
        &mut self,
        owner: &Owner<'_>,
        request: &AcquireRequest<'_>,
        session: Option<u64>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        end_of(self.store, request.lease)?;
        let reserve = request.reserve.map(|ms| end_of(self.store, ms)).transpose()?;
        let timeout = request.block.filter(|ms| *ms > 0);
        if timeout.is_some_and(|ms| End::of_lease(self.store.now(), ms).is_none()) {
            return Err(Error::InvalidTimeout);
        }
        let AcquireRequest { want, lease, once, fence, .. } = *request;
        let terms = Terms { lease, once, fence, session };
        let refused = match self.try_acquire(owner, want, terms, TriedFor::NewRequest(Joint::No))? {
            Outcome::Granted(grant) => {
                self.serve_holder(owner.bytes());
                if core::lets_others_in(want, self.engine.settings.policy) {
                    self.serve();
                }
                return Ok(Acquired::held(&[grant]));
            }
            Outcome::Refused(refused) => refused,
        };
        if request.block.is_some() && self.store.ctx().situation().may_block {
            return self.wait(owner, want, terms, timeout, refused, block);
        }
        if let Some(end) = reserve {
            if self.engine.waits.may_reserve(&self.store.lock(), refused.reservation) {
                self.store.reserve(request.owner, end);
            }
        }
        Ok(Acquired::Refused(refused.remaining(self.store)))
    }

    /// Takes a snapshot, asks the rules and commits a grant. It never waits.
    pub fn try_acquire(
        &mut self,
        owner: &Owner<'_>,
        want: Want,
        terms: Terms,
        tried_for: TriedFor,
    ) -> Result<Outcome, Error> {
        // `ref`: a plan is too large to move cheaply.
        match self.decide(owner, want, terms, tried_for) {
            Ok(Decision::Granted(ref plan)) => {
                Ok(Outcome::Granted(self.carry_out(owner, want, terms, plan)?))
            }
            Ok(Decision::Refused(refused, ref snapshot)) => {
                self.commit(snapshot, owner, &snapshot.lock)?;
                Ok(Outcome::Refused(refused))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a snapshot and asks the rules.
    pub fn decide(
        &mut self,
        owner: &Owner<'_>,
        want: Want,
        terms: Terms,
        tried_for: TriedFor,
    ) -> Result<Decision, Error> {
        let lease = end_of(self.store, terms.lease)?;
        let scope = if want == Want::Upgrade { ReadScope::Presence } else { ReadScope::Mode };
        let snapshot = self.snapshot(owner, scope)?;
        let lock = &snapshot.lock;
        let reserved = match want {
            // A reservation does not stop an owner that already has a hold, and a read does not
            // consume it.
            Want::Read if !lock.own.is_empty() => None,
            // A reservation does not stop an upgrade. A reservation key without an owner must not
            // stop it either, so that error is dropped.
            Want::Upgrade => self.store.reservation().unwrap_or_default(),
            Want::Read | Want::Write => self.store.reservation()?,
        };
        let reserved_by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
        let policy = self.engine.settings.policy;
        let reservation = core::reservation(reserved_by, owner.bytes(), want, lock, policy);
        let (waits, here) = (&self.engine.waits, self.store.lock());
        let is_behind = match tried_for {
            TriedFor::NewRequest(joint) => {
                waits.holds_up(&here, lock, owner.bytes(), (want, joint), reservation)
            }
            TriedFor::Waiter => false,
            TriedFor::JointWaiter(id) => waits.holds_up_waiter(&here, lock, id, want, reserved_by),
        };
        let once_rank = self.engine.once_rank(self.store, &snapshot, owner.bytes(), terms);
        let decided = core::Terms { lease, once: terms.once, meant: once_rank };
        let verdict = match core::decide(lock, want, decided, reservation, is_behind) {
            Err(RequestError::NotHeld(reason)) => self.if_held(&snapshot, owner, Err(reason))?,
            verdict => verdict?,
        };
        match verdict {
            Verdict::Granted(after) => {
                // Only write holds have tokens.
                let token = (terms.fence && want != Want::Read)
                    .then(|| self.engine.next_token(self.store, &snapshot, owner))
                    .transpose()?;
                Ok(Decision::Granted(Plan { snapshot, after, reservation, once_rank, token }))
            }
            Verdict::Refused(refusal) => {
                let lock = snapshot.lock.clone();
                let refused = Refused { lock, refusal, reserved, reservation };
                Ok(Decision::Refused(refused, snapshot))
            }
        }
    }

    /// Writes the lock as it is after the grant.
    pub fn carry_out(
        &mut self,
        owner: &Owner<'_>,
        want: Want,
        terms: Terms,
        plan: &Plan,
    ) -> Result<Grant, Error> {
        let Plan { snapshot, after, reservation, once_rank, token } = plan;
        self.commit(snapshot, owner, after)?;
        if let Some(token) = *token {
            self.engine.store_token(self.store, owner, token);
        } else if want != Want::Read && snapshot.lock.own.writes == 0 && !snapshot.lock.is_free() {
            // The last writer may have ended without an event. Its token must not go to this
            // writer. That of a free lock is forgotten already.
            self.engine.forget_token(self.store);
        }
        if want != Want::Read && *reservation == Reservation::Own {
            self.store.consume_reservation();
        }
        self.store.notice(What::Acquired);
        let (engine, store) = (&mut *self.engine, &*self.store);
        let grant = engine.record_grant(store, snapshot, owner, after, (want, terms), *once_rank);
        Ok(Grant { token: *token, ..grant })
    }
}

/// Which kind of request is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TriedFor {
    /// A new request: the waiters of the lock may hold it up.
    NewRequest(Joint),
    /// A waiter whose turn it is: it is not held up.
    Waiter,
    /// A joint waiter. It is its turn in one of its queues, and it may be held up in others.
    JointWaiter(WaiterId),
}

impl Refused {
    /// The ms until the holds or the reservation in the way end at the latest, 1 or more. None:
    /// they never end by themselves. 0: nothing is in the way but waiters that are being served.
    pub fn remaining(&self, store: &Store<'_>) -> Option<Millis> {
        let held = (!self.lock.is_free()).then_some(self.lock.end);
        let reserved = self.reserved.as_ref().filter(|_| match held {
            Some(_) => self.reservation == Reservation::Other,
            None => self.refusal != Refusal::Held,
        });
        match held.max(reserved.map(|reserved| reserved.end)) {
            Some(end) => end.remaining(store.now()),
            // No hold and no reservation is in the way: other waiters are being served.
            None => Some(0),
        }
    }
}

/// The id of the client for a session hold. Fails in a script and without a client.
pub(super) fn session_client(ctx: Ctx<'_>) -> Result<u64, Error> {
    match ctx.client_id() {
        Some(client) if !ctx.situation().script => Ok(client),
        _ => Err(Error::NoSession),
    }
}
