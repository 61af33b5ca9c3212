//! Key events of the module's own (SPEC section 5), noted while the engine works
//! and raised when it is done.

use super::{Engine, Scene};
use crate::store::Store;
use std::ffi::CStr;

/// A key event to raise.
pub struct Notice {
    /// The lock's database.
    pub db: i32,
    /// Its name.
    pub lock: Vec<u8>,
    /// What happened to it.
    pub what: What,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request was granted.
    Acquired,
    /// Holds were given back or forced away.
    Released,
    /// Holds have lapsed.
    Lapsed,
}

impl What {
    /// The event's name.
    pub fn name(self) -> &'static CStr {
        match self {
            What::Acquired => c"rwlock.acquire",
            What::Released => c"rwlock.release",
            What::Lapsed => c"rwlock.expire",
        }
    }
}

impl Engine {
    /// Notes what happened, if anybody wants to know.
    pub(super) fn notice(&mut self, scene: Scene<'_>, store: &Store<'_>, what: What) {
        if !scene.ctx.is_asked_for_key_events() {
            return;
        }
        let (db, lock) = (scene.db, store.name());
        // A lock with many readers is rid of those that have lapsed one by one.
        let is_same = |last: &Notice| last.what == what && last.db == db && last.lock == lock;
        if what == What::Lapsed && self.notices.last().is_some_and(is_same) {
            return;
        }
        self.notices.push(Notice { db, lock: lock.to_vec(), what });
    }

    /// The key events that wait to be raised.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}
