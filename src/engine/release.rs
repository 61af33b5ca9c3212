//! Giving holds back, making them last, and breaking locks open.

use super::memory::LockId;
use super::notices::What;
use super::{end_of, Engine, Error, Scene};
use crate::core::{self, End, Lock, Millis, Mode, Which};
use crate::ffi::{Ctx, Str};
use crate::store::{Forced, Owner, Store, Survey};

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
        self.on_lock(ctx, key, |engine, scene, store| {
            if engine.has_queue(scene, store) {
                store.await_successor();
            }
            let after = if engine.sessions.is_empty() {
                let seen = engine.look(scene, store, &owner, Survey::Release)?;
                let after = core::release(&seen.lock, which, None);
                let after = engine.settled(scene, store, &seen, &owner, after)?;
                engine.commit(scene, store, &seen, &owner, &after)?;
                engine.figures.count_released(seen.lock.own.count() - after.own.count());
                after
            } else {
                engine.release_among_sessions(scene, store, &owner, which)?
            };
            engine.notice(scene, store, What::Released);
            engine.serve(scene, store);
            Ok(after.is_free())
        })
    }

    fn release_among_sessions(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
        owner: &Owner<'_>,
        which: Which,
    ) -> Result<Lock, Error> {
        // First without what has lapsed, then the numbers are what they seem.
        let seen = self.look(scene, store, owner, Survey::Ends)?;
        self.commit(scene, store, &seen, owner, &seen.lock)?;
        let seen = self.look(scene, store, owner, Survey::Ends)?;
        let lock = LockId { db: scene.db, name: store.name().into() };
        let (rank, binding) = self.choose(scene, &lock, owner.bytes(), &seen, which);
        let after = core::release(&seen.lock, which, rank)?;
        self.commit(scene, store, &seen, owner, &after)?;
        self.figures.count_released(seen.lock.own.count() - after.own.count());
        if let Some(id) = binding {
            self.unbind(id);
        }
        match rank.and_then(|rank| seen.number_of(rank)) {
            Some(gone) => self.bindings_close_gap(&lock, owner.bytes(), gone),
            None if which == Which::All => self.unbind_owner(&lock, owner.bytes()),
            None => {}
        }
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
        self.on_lock(ctx, key, |engine, scene, store| {
            let lease = end_of(store, lease)?;
            let seen = engine.look(scene, store, &owner, Survey::Mode)?;
            let after = core::renew(&seen.lock, lease);
            let after = engine.settled(scene, store, &seen, &owner, after)?;
            engine.commit(scene, store, &seen, &owner, &after)
        })
    }

    /// FORCEUNLOCK. False when there was nothing to remove.
    pub fn force(&mut self, ctx: Ctx<'_>, key: &Str, only: Option<Mode>) -> Result<bool, Error> {
        self.on_lock(ctx, key, |engine, scene, store| {
            let last = engine.last_owner(scene, store);
            let forced = store.force(only, last.as_deref())?;
            if let Forced::Lock(holds) = forced {
                engine.figures.count_released(holds);
                engine.notice(scene, store, What::Released);
            }
            if forced != Forced::Nothing {
                engine.remember(scene, store, &Lock::free(), |_| 0, End::Never, Due::Exactly);
                engine.serve(scene, store);
            }
            Ok(forced != Forced::Nothing)
        })
    }
}
