//! Whether this server would serve a client's command on a lock now, and whether it would take a
//! write.

use super::hash::mode_of;
use super::slot::probe;
use super::{Error, LockName, Store};
use crate::ffi::{Access, Db, KeyType, Refusal, Str};

/// Whether the key holds a hash with a mode, like a lock. This server may not serve the lock. Then
/// its timeout keys may be on another node, and its holders are not known.
pub fn is_here(db: Db<'_>, key: &Str) -> bool {
    LockName::new(key.bytes(), true).is_ok()
        && db
            .open(key, Access::Read)
            .is_some_and(|key| key.kind() == KeyType::Hash && mode_of(&key).is_ok())
}

impl<'c> Store<'c> {
    /// Opens a lock whose slot is moving between nodes, for [`Store::lengthen`] and nothing else:
    /// some of its keys may be on the other node. None: the slot is not moving, or there is another
    /// reason against a write.
    pub fn on_its_way(db: Db<'c>, key: &'c Str) -> Result<Option<Store<'c>>, Error> {
        let name = LockName::new(key.bytes(), true)?;
        let ctx = db.ctx();
        let only_slot = || matches!(ctx.would_write(&probe(name)), Err(Refusal::Slot));
        let may_write = !ctx.writes_are_paused() && only_slot();
        Ok(may_write.then(|| Store::of(db, key, name, Access::Write)))
    }

    /// Whether the server would take a write to this lock now. It depends on the server's role, its
    /// replicas, its disk, the slot, and whether writes are paused. Memory is not checked.
    pub fn may_write(&self) -> bool {
        let ctx = self.db.ctx();
        !ctx.writes_are_paused() && ctx.would_write(&probe(self.name)).is_ok()
    }

    /// Notes that a client's command works on this lock, and that the server has allowed its write.
    pub fn allow(&mut self) {
        self.is_allowed = true;
    }

    /// Like [`Store::allow`], if a client's command works on the lock of `other`.
    pub fn allow_as(&mut self, other: &Store<'_>) {
        self.is_allowed = other.is_allowed;
    }

    /// Whether a waiter may be granted this lock: the server has memory, and takes the write. It
    /// takes the write if it has allowed the command that serves the waiter. Memory is checked in
    /// any case, because UNLOCK is also allowed without memory.
    pub fn may_grant(&self) -> bool {
        !self.db.ctx().situation().out_of_memory && (self.is_allowed || self.may_write())
    }
}
