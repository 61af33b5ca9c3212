//! Giving holds back, making them last, and breaking locks open.

use super::bindings::Returned;
use super::{end_of, Engine, Error};
use crate::core::{self, End, Lock, Millis, Mode, Which};
use crate::ffi::{Ctx, Str};
use crate::store::{Forced, Owner, Store, Survey, What};

use super::lapse::Due;

impl Engine {
    /// UNLOCK. True when the lock is now free of all holds that there were.
    pub fn release(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        owner: &Str,
        which: Which,
    ) -> Result<bool, Error> {
        let owner = Owner::new(owner)?;
        self.on_lock(ctx, key, |engine, store| {
            if engine.has_queue(store) {
                store.await_successor();
            }
            let reserved = which == Which::All && is_reserved_by(store, &owner);
            let after = match engine.give_back(store, &owner, which) {
                // The reservation is all that it has.
                Err(Error::NotHeld(_)) if reserved => {
                    engine.look(store, &owner, Survey::Presence)?.lock
                }
                after => {
                    let after = after?;
                    store.notice(What::Released);
                    after
                }
            };
            if reserved {
                store.consume_reservation();
            }
            engine.serve(store);
            Ok(after.is_free())
        })
    }

    fn give_back(
        &mut self,
        store: &mut Store<'_>,
        owner: &Owner<'_>,
        which: Which,
    ) -> Result<Lock, Error> {
        let is_tracked = self.tracked.has(store.lock());
        let survey = if is_tracked { Survey::Ends } else { Survey::Release };
        let seen = self.look(store, owner, survey)?;
        let returned = match is_tracked {
            true => self.choose(store, owner.bytes(), &seen, which),
            false => Returned::Nothing,
        };
        let rank = match returned {
            Returned::Read(rank) => Some(rank),
            _ => None,
        };
        let after = core::release(&seen.lock, which, rank);
        let after = self.settled(store, &seen, owner, after)?;
        self.commit_return(store, &seen, owner, &after, returned)?;
        self.figures.count_released(seen.lock.own.count() - after.own.count());
        Ok(after)
    }

    /// RENEW.
    pub fn renew(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        owner: &Str,
        lease: Millis,
    ) -> Result<(), Error> {
        let owner = Owner::new(owner)?;
        self.on_lock(ctx, key, |engine, store| {
            let lease = end_of(store, lease)?;
            let seen = engine.look(store, &owner, Survey::Mode)?;
            let after = core::renew(&seen.lock, lease);
            let after = engine.settled(store, &seen, &owner, after)?;
            engine.commit(store, &seen, &owner, &after)
        })
    }

    /// FORCEUNLOCK. False when there was nothing to remove.
    pub fn force(&mut self, ctx: Ctx<'_>, key: &Str, only: Option<Mode>) -> Result<bool, Error> {
        self.on_lock(ctx, key, |engine, store| {
            let last = engine.last_owner(store);
            let forced = store.force(only, last.as_deref())?;
            if let Forced::Lock(holds) = forced {
                engine.figures.count_released(holds);
                store.notice(What::Released);
            }
            if forced != Forced::Nothing {
                engine.remember(store, &Lock::free(), |_| 0, End::Never, Due::Exactly);
                engine.serve(store);
            }
            Ok(forced != Forced::Nothing)
        })
    }
}

/// Whether a reservation of the owner stands. A key that holds none keeps nobody
/// from giving back.
fn is_reserved_by(store: &Store<'_>, owner: &Owner<'_>) -> bool {
    let reserved = store.reservation().unwrap_or_default();
    reserved.is_some_and(|reserved| reserved.owner == owner.bytes())
}
