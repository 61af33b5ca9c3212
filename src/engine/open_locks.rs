//! The locks that a piece of work keeps open besides its own.

use super::state::LockId;
use crate::ffi::{Access, Ctx, Text};
use crate::store::{self, LockRef, Store};
use std::cell::OnceCell;

/// How many locks stay open. The others are opened anew each time: so a command with many locks,
/// or with many waiters to serve, keeps a bounded number of keys open and finds each quickly.
const MOST: usize = 16;

/// The names of the locks that stay open. They have to outlive the locks, so the caller has them.
#[derive(Default)]
pub(super) struct OpenNames(OnceCell<Box<[OnceCell<Text>; MOST]>>);

/// The locks that a piece of work keeps open besides its own, because it will need them again.
pub(super) struct OpenLocks<'c> {
    names: &'c OpenNames,
    /// The key of a lock must not have two handles, so a lock in use is not in this list. In
    /// boxes, because it is taken out and put back each time.
    #[expect(clippy::vec_box, reason = "a store is too large to move cheaply")]
    stores: Vec<Box<Store<'c>>>,
}

impl<'c> OpenLocks<'c> {
    /// No lock is open yet.
    pub fn new(names: &'c OpenNames) -> OpenLocks<'c> {
        OpenLocks { names, stores: Vec::new() }
    }

    /// All locks, to be used in another place. None stays here.
    pub fn take_all(&mut self) -> OpenLocks<'c> {
        OpenLocks { names: self.names, stores: std::mem::take(&mut self.stores) }
    }

    /// A lock that is open.
    pub fn get(&self, lock: LockRef<'_>) -> Option<&Store<'c>> {
        self.stores.iter().find(|store| store.lock() == lock).map(Box::as_ref)
    }

    /// Takes a lock out, to work on it, or opens it. None: no more locks can stay open.
    pub fn take(
        &mut self,
        ctx: Ctx<'c>,
        lock: &LockId,
    ) -> Result<Option<Box<Store<'c>>>, store::Error> {
        if let Some(at) = self.stores.iter().position(|store| store.lock() == lock.get()) {
            return Ok(Some(self.stores.swap_remove(at)));
        }
        let Some(name) = self.names.add(lock) else {
            return Ok(None);
        };
        Ok(Some(Box::new(Store::open(ctx.in_db(lock.db), name, Access::Write)?)))
    }

    /// Puts a lock back after work.
    pub fn put(&mut self, mut store: Box<Store<'c>>) {
        store.close_kept();
        self.stores.push(store);
    }
}

impl OpenNames {
    /// None: there is no more room.
    fn add(&self, lock: &LockId) -> Option<&Text> {
        let names = self.0.get_or_init(Box::default);
        let free = names.iter().find(|name| name.get().is_none())?;
        Some(free.get_or_init(|| Text::new(&lock.name)))
    }
}
