//! Work on one lock, from opening it to the end.
//!
//! Every use case on a lock goes through a [`LockTxn`]: it opens the lock, refreshes it if that is
//! due, takes a snapshot, commits what the rules decide and serves the queue. What outlives this
//! work is in [`Engine`].

use super::held::Before;
use super::open_locks::{OpenLocks, OpenNames};
use super::pass::Pass;
use super::schedule::Reschedule;
use super::state::Event;
use super::tracking::GivenUp;
use super::{Engine, Error};
use crate::core::wait::Holder;
use crate::core::{Announcement, End, Lock, Mode, NotHeld, Want};
use crate::ffi::{Access, Ctx, Str, Text};
use crate::store::{self, LockRef, Owner, ReadScope, Snapshot, Store, What};

/// Work on one open lock.
pub(super) struct LockTxn<'e, 'c> {
    pub engine: &'e mut Engine,
    /// The lock's keys.
    pub store: &'e mut Store<'c>,
    /// Other locks that stay open.
    pub open: OpenLocks<'c>,
}

impl Engine {
    /// Runs the work of a command on a lock. First gives back the holds that the module is to
    /// return, and refreshes the lock if that is due. The store is created in place, because it is
    /// too large to move cheaply.
    pub(super) fn on_lock<R>(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        work: impl FnOnce(&mut LockTxn<'_, '_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let db = ctx.db();
        if self.returns.has_ready() && !ctx.writes_are_paused() {
            let pass = Pass::begin(self.now(ctx));
            self.return_holds(ctx, &pass);
        }
        let name = Store::check(db, key, Access::Write)?;
        if self.returns.has_any() && !ctx.writes_are_paused() {
            self.return_holds_of(ctx, LockRef { db: db.number(), name: key.bytes() });
        }
        let names = OpenNames::default();
        let mut store = Store::of(db, key, name, Access::Write);
        store.allow();
        let mut txn = self.on_store(&mut store, &names);
        txn.refresh_if_due();
        work(&mut txn)
    }

    /// Begins work on an open lock. `names`: new, for this work.
    pub(super) fn on_store<'e, 'c>(
        &'e mut self,
        store: &'e mut Store<'c>,
        names: &'c OpenNames,
    ) -> LockTxn<'e, 'c> {
        LockTxn { engine: self, store, open: OpenLocks::new(names) }
    }
}

impl LockTxn<'_, '_> {
    /// Refreshes the lock if its time has come, if its key is deleted, or if it exists and nothing
    /// is remembered of it.
    pub fn refresh_if_due(&mut self) {
        if self.is_due() {
            // If the key holds no lock, the command itself reports the error.
            let _ = self.refresh();
        }
    }

    /// Whether [`LockTxn::refresh_if_due`] would refresh the lock.
    pub fn is_due(&self) -> bool {
        let (engine, store) = (&*self.engine, &*self.store);
        match engine.memory.get(store.lock()) {
            None => store.exists(),
            // The lock was held but its key does not exist, so it has lapsed. Its timer may be
            // late, for example while writes were paused.
            Some(known) if known.mode().is_some() && !store.exists() => true,
            Some(known) if known.needs_refresh => true,
            // The only hold ends with the key, and the key still exists.
            Some(known) if known.has_single_write() && !engine.has_queue(store) => false,
            Some(known) => known.due().is_some_and(|due| engine.clock.moment_of(store.now()) > due),
        }
    }

    /// Takes a snapshot of the lock as `owner` sees it.
    pub fn snapshot(
        &mut self,
        owner: &Owner<'_>,
        scope: ReadScope,
    ) -> Result<Snapshot, store::Error> {
        self.engine.snapshot(self.store, owner, scope)
    }

    /// Writes `after` over the lock of `snapshot`, and remembers it.
    pub fn commit(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
    ) -> Result<(), Error> {
        self.commit_giving_up(snapshot, owner, after, GivenUp::Nothing)
    }

    /// Writes `after` over the lock of `snapshot`, and remembers it. `given_up`: what the owner
    /// gives up.
    pub fn commit_giving_up(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        given_up: GivenUp,
    ) -> Result<(), Error> {
        let LockTxn { engine, store, .. } = self;
        let last = engine.last_owner(store);
        store.commit(snapshot, owner, after, last.as_deref())?;
        let lapsed = snapshot.lapsed();
        if lapsed > 0 || snapshot.has_outlived() {
            store.notice(What::Lapsed);
            engine.statistics.count_lapsed(lapsed);
            engine.log_lapsed(store, snapshot, owner.bytes());
        }
        engine.follow(store, owner.bytes(), snapshot, after, given_up);
        if !engine.waits.is_empty() {
            engine.note_committed(store.lock(), owner.bytes(), after);
        }
        if engine.waits.has_joint() {
            let ended =
                after.own.is_empty() || after.own.writes == 0 && snapshot.lock.own.writes > 0;
            if ended {
                engine.waits.hold_ended(&store.lock(), owner.bytes());
            }
            for (reader, _) in snapshot.repaired_readers() {
                engine.waits.hold_ended(&store.lock(), reader);
            }
        }
        if after.mode() == Some(Mode::Read) {
            engine.remember_reader(store, owner.bytes(), &after.own.reads);
        }
        let earliest = after.own.reads.iter().copied().fold(after.end, End::min);
        let replaced = snapshot.lock.own.count().saturating_add(lapsed);
        let holds = |before| after.own.count().saturating_add(before).saturating_sub(replaced);
        let before = Before::of(&snapshot.lock);
        engine.remember(store, (before, after), holds, earliest, Reschedule::NotLater);
        if after.is_free() {
            engine.note_last_holder(store.lock(), owner.bytes());
        }
        engine.remember_last_owner(store, owner.bytes(), after);
        Ok(())
    }

    /// Passes on the result of a rule. On NOTHELD it first commits the removal of the lapsed holds
    /// in the snapshot, which are often the reason.
    pub fn if_held<T>(
        &mut self,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        result: Result<T, NotHeld>,
    ) -> Result<T, Error> {
        if result.is_err() {
            self.commit(snapshot, owner, &snapshot.lock)?;
        }
        Ok(result?)
    }

    /// Reads the whole lock: removes and announces what has lapsed, schedules the next refresh and
    /// serves the queue.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let owner = Owner::nobody();
        if let Some(earliest) = self.lapse_readers() {
            let snapshot = self.snapshot(&owner, ReadScope::Mode);
            // The full snapshot below handles a free lock and an error.
            if let Some(snapshot) = snapshot.ok().filter(|snapshot| !snapshot.lock.is_free()) {
                let earliest = earliest.min(snapshot.lock.end);
                let LockTxn { engine, store, .. } = self;
                let lock = (Before::Held, &snapshot.lock);
                engine.remember(store, lock, |holds| holds, earliest, Reschedule::Exactly);
                engine.note_committed(store.lock(), owner.bytes(), &snapshot.lock);
                self.serve();
                return Ok(());
            }
        }
        let LockTxn { engine, store, .. } = self;
        let snapshot = match store.snapshot(&owner, ReadScope::Ends) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let lock = (Before::Free, &Lock::free());
                engine.remember(store, lock, |_| 0, End::Never, Reschedule::Exactly);
                engine.fail_queue(store, &Error::Store(error.clone()));
                return Err(error.into());
            }
        };
        let known = engine.memory.get(store.lock());
        let before = known.and_then(|known| Some((known.mode()?, known.holds)));
        let last_seen = known.and_then(|known| {
            known.last_owner().or_else(|| known.readers.as_ref()?.last_owner()).cloned()
        });
        let mut after = snapshot.lock.clone();
        if after.mode() == Some(Mode::Read) {
            // Others may have shortened the expiry of the hash below the end of a reader.
            after.lengthen_to_readers();
        }
        let last = engine.last_owner(store);
        store.commit(&snapshot, &owner, &after, last.as_deref())?;
        engine.follow(store, owner.bytes(), &snapshot, &after, GivenUp::Nothing);
        engine.verify_tracked(store);
        if snapshot.lock.is_free() && before.is_some() {
            engine.waits.queue_changed(&store.lock());
        }
        for (reader, _) in snapshot.repaired_readers() {
            engine.waits.hold_ended(&store.lock(), reader);
        }
        engine.statistics.count_lapsed(snapshot.lapsed());
        engine.log_lapsed(store, &snapshot, owner.bytes());
        if let (false, Some((mode, holds))) = (snapshot.has_hash(), before) {
            let (ended, want) = match mode {
                Mode::Read => (Announcement::ReadFreed, Want::Read),
                Mode::Write => (Announcement::WriteEnded, Want::Write),
            };
            let owner = last_seen.as_deref();
            let held = engine.held_so_far(store);
            engine.log_ended(store, Event::Lapse, owner, want, held);
            store.announce(Some(ended), last.as_deref().unwrap_or_default());
            engine.statistics.count_lapsed(holds.into());
        }
        if snapshot.has_lapsed() || !snapshot.has_hash() && before.is_some() {
            store.notice(What::Lapsed);
        }
        let earliest = snapshot.earliest.min(after.end);
        let lock = (Before::of(&snapshot.lock), &after);
        engine.remember(store, lock, |_| snapshot.holds, earliest, Reschedule::Exactly);
        if let (true, Some(last)) = (after.is_free(), &last_seen) {
            engine.note_last_holder(store.lock(), last);
        }
        engine.remember_readers(store);
        engine.remember_last_owner(store, owner.bytes(), &after);
        if self.engine.has_queue(self.store) {
            self.engine.note_committed(self.store.lock(), owner.bytes(), &after);
            if after.mode() == Some(Mode::Write) {
                // A script may have put another writer there without an event that tells.
                self.engine.waits.set_holder(&self.store.lock(), Holder::Anybody);
            }
            self.note_holder(&after);
            // External changes (SWAPDB, a script) may have made waiters into holders.
            for owner in self.engine.waiting_among(self.store).unwrap_or_default() {
                self.serve_holder(&owner);
            }
        }
        self.serve();
        Ok(())
    }

    /// Removes the lapsed holds of a lock whose readers are remembered, one owner after the other.
    /// Returns the earliest remaining end. None: the whole lock has to be read.
    fn lapse_readers(&mut self) -> Option<End> {
        loop {
            let known = self.engine.memory.get(self.store.lock())?;
            let readers = known.readers.as_ref()?;
            let Some(lapsed) = readers.lapsed(|end| self.store.is_past(end)) else {
                return Some(readers.earliest());
            };
            let name = Text::new(&lapsed);
            let owner = Owner::new(&name).ok()?;
            let snapshot = self.snapshot(&owner, ReadScope::Ends).ok()?;
            if snapshot.lock.is_free() || self.commit(&snapshot, &owner, &snapshot.lock).is_err() {
                return None;
            }
            // The loop must not find this owner again, even if the keys still show its hold.
            self.engine.remember_reader(self.store, &lapsed, &snapshot.lock.own.reads);
        }
    }
}
