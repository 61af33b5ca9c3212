//! Whether this server serves a lock now, and takes writes to it: what it would say to a
//! client's command.

use super::hash::mode_of;
use super::slot::probe;
use super::{Error, LockName, Store};
use crate::ffi::{Access, Db, KeyType, Refusal, Str};

/// Whether the key holds a hash that looks like a lock, though this server may not serve it:
/// its timeout keys may be elsewhere, so who holds it cannot be told.
pub fn is_here(db: Db<'_>, key: &Str) -> bool {
    LockName::new(key.bytes(), true).is_ok()
        && db
            .open(key, Access::Read)
            .is_some_and(|key| key.kind() == KeyType::Hash && mode_of(&key).is_ok())
}

impl<'c> Store<'c> {
    /// The keys that are here of a lock whose slot is on its way between nodes, where
    /// nothing but that stands in the way of a write. Of its other keys nothing is
    /// known, so they are good for no more than [`Store::lengthen`].
    pub fn on_its_way(db: Db<'c>, key: &'c Str) -> Result<Option<Store<'c>>, Error> {
        let name = LockName::new(key.bytes(), true)?;
        let ctx = db.ctx();
        let only_slot = || matches!(ctx.would_write(&probe(name)), Err(Refusal::Slot));
        let may_write = !ctx.writes_are_paused() && only_slot();
        Ok(may_write.then(|| Store::of(db, key, name, Access::Write)))
    }

    /// Whether the server would take a write to this lock now from a command that needs no
    /// memory: its role, its replicas, its disk and the slot allow it, and writes are not
    /// paused.
    pub fn may_write(&self) -> bool {
        let ctx = self.db.ctx();
        !ctx.writes_are_paused() && ctx.would_write(&probe(self.name)).is_ok()
    }

    /// A client's command works on this lock, and the server has allowed that.
    pub fn allow(&mut self) {
        self.is_allowed = true;
    }

    /// Whether a waiter may be granted this lock: the server has memory, and would take a
    /// write, or has allowed the command that serves the waiter. (Such a command may be one
    /// that runs without memory, as UNLOCK does.)
    pub fn may_grant(&self) -> bool {
        !self.db.ctx().situation().out_of_memory && (self.is_allowed || self.may_write())
    }
}
