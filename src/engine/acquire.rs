//! Taking holds and changing their kind.

use super::request::{AcquireRequest, Acquired, Terms};
use super::state::Grant;
use super::tracking::Returned;
use super::transaction::LockTxn;
use super::{end_of, Engine, Error};
use crate::core::{
    self, End, Lock, Millis, Refusal, RequestError, Reservation, Verdict, WaiterId, Want,
};
use crate::ffi::{Ctx, Str};
use crate::store::{Owner, ReadScope, Reserved, Store, What};

/// What came of a try.
pub(super) enum Outcome {
    Granted(Grant),
    Refused(Refused),
}

/// A request that was refused, and what stood in its way.
pub(super) struct Refused {
    /// The lock, as the owner sees it.
    pub lock: Lock,
    pub refusal: Refusal,
    /// The reservation that stands, and what it means for the owner.
    pub reserved: Option<Reserved>,
    pub reservation: Reservation,
}

impl Engine {
    /// RLOCK, WLOCK and UPGRADE. `block` blocks the client of a request that has entered
    /// the queue; false: the server does not let it.
    pub fn acquire(
        &mut self,
        ctx: Ctx<'_>,
        request: &AcquireRequest<'_>,
        block: impl FnOnce(WaiterId) -> bool,
    ) -> Result<Acquired, Error> {
        let owner = Owner::new(request.owner)?;
        let session = match request.session {
            true => Some(session_client(ctx)?),
            false => None,
        };
        self.on_lock(ctx, request.key, |txn| txn.acquire(&owner, request, session, block))
    }

    /// DOWNGRADE.
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
            let returned = txn.engine.choose_downgraded(txn.store, owner.bytes(), &snapshot);
            txn.commit_return(&snapshot, &owner, &after, returned)?;
            if let Returned::Downgraded(Some(id)) = returned {
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
    /// RLOCK, WLOCK and UPGRADE.
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
        let terms = Terms { want, lease, once, fence, session };
        let refused = match self.try_acquire(owner, terms, Queueing::Behind)? {
            Outcome::Granted(grant) => {
                self.serve_holder(owner.bytes());
                if core::lets_others_in(want, self.engine.settings.policy) {
                    self.serve();
                }
                return Ok(Acquired::Held(grant.token));
            }
            Outcome::Refused(refused) => refused,
        };
        if request.block.is_some() && self.store.ctx().situation().may_block {
            return self.wait(owner, terms, timeout, refused, block);
        }
        if let Some(end) = reserve {
            if self.engine.waits.may_reserve(&self.store.lock(), refused.reservation) {
                self.store.reserve(request.owner, end);
            }
        }
        Ok(Acquired::Refused(refused.remaining(self.store)))
    }

    /// Tries a request.
    pub fn try_acquire(
        &mut self,
        owner: &Owner<'_>,
        terms: Terms,
        queueing: Queueing,
    ) -> Result<Outcome, Error> {
        let lease = end_of(self.store, terms.lease)?;
        let scope = if terms.want == Want::Upgrade { ReadScope::Presence } else { ReadScope::Mode };
        let snapshot = self.snapshot(owner, scope)?;
        let lock = &snapshot.lock;
        let reserved = match terms.want {
            // A holder is not held up by a reservation, nor does it consume one.
            Want::Read if !lock.own.is_empty() => None,
            // Nor is one who upgrades, also not by a key that holds none.
            Want::Upgrade => self.store.reservation().unwrap_or_default(),
            Want::Read | Want::Write => self.store.reservation()?,
        };
        let by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
        let (want, policy) = (terms.want, self.engine.settings.policy);
        let reservation = core::reservation(by, owner.bytes(), want, lock, policy);
        let is_behind = queueing == Queueing::Behind
            && self.engine.waits.holds_up(
                &self.store.lock(),
                lock,
                owner.bytes(),
                want,
                reservation,
            );
        let meant = self.engine.meant_by_once(self.store, &snapshot, owner.bytes(), terms);
        let decided = core::Terms { lease, once: terms.once, meant };
        let verdict = match core::decide(lock, want, decided, reservation, is_behind) {
            Err(RequestError::NotHeld(reason)) => self.if_held(&snapshot, owner, Err(reason))?,
            verdict => verdict?,
        };
        match verdict {
            Verdict::Granted(after) => {
                let token = terms
                    .fence
                    .then(|| self.engine.token(self.store, &snapshot, owner))
                    .transpose()?;
                self.commit(&snapshot, owner, &after)?;
                if let Some(token) = token {
                    self.engine.hand_out(self.store, owner, token);
                } else if terms.want != Want::Read && snapshot.lock.own.writes == 0 {
                    // What ended the last writer's time may not have been seen.
                    self.engine.forget_token(self.store);
                }
                if terms.want != Want::Read && reservation == Reservation::Own {
                    self.store.consume_reservation();
                }
                self.store.notice(What::Acquired);
                let grant =
                    self.engine.name_grant(self.store, &snapshot, owner, &after, terms, meant);
                Ok(Outcome::Granted(Grant { token, ..grant }))
            }
            Verdict::Refused(refusal) => {
                self.commit(&snapshot, owner, lock)?;
                Ok(Outcome::Refused(Refused {
                    lock: snapshot.lock,
                    refusal,
                    reserved,
                    reservation,
                }))
            }
        }
    }
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queueing {
    /// Behind those who wait.
    Behind,
    /// It is its turn.
    Served,
}

impl Refused {
    /// The ms until what stands in the way ends at the latest; None: it never ends by
    /// itself.
    pub fn remaining(&self, store: &Store<'_>) -> Option<Millis> {
        let held = (!self.lock.is_free()).then_some(self.lock.end);
        let reserved = self.reserved.as_ref().filter(|_| match held {
            Some(_) => self.reservation == Reservation::Other,
            None => self.refusal != Refusal::Held,
        });
        match held.max(reserved.map(|reserved| reserved.end)) {
            Some(end) => end.remaining(store.now()),
            // Nothing is held or reserved: others are being served.
            None => Some(0),
        }
    }
}

/// The client that a session hold is bound to.
fn session_client(ctx: Ctx<'_>) -> Result<u64, Error> {
    match ctx.client_id() {
        Some(client) if !ctx.situation().script => Ok(client),
        _ => Err(Error::NoSession),
    }
}
