//! HOTLOCKS: the locks that were waited for longest.

use super::state::HotLock;
use super::Engine;
use crate::core::Figures;
use crate::ffi::{Ctx, User};

/// A lock, as HOTLOCKS shows it.
pub struct HotLockInfo {
    /// The name. A name that is too long to be kept whole is cut.
    pub name: Vec<u8>,
    /// The database in which it was waited for.
    pub db: i32,
    pub figures: Figures,
}

impl Engine {
    /// Runs HOTLOCKS: lists at most `count` locks of all databases, the longest total first. The
    /// command names no keys, so the server cannot check the user's rights to them. This method
    /// lists only locks that the user may read.
    pub fn hot_locks(&self, ctx: Ctx<'_>, count: usize) -> Vec<HotLockInfo> {
        let user = ctx.user();
        let all = self.hot_locks.longest_first().into_iter();
        all.filter(|hot| may_read(&user, hot.lock))
            .take(count)
            .map(|hot| HotLockInfo { name: shown(hot.lock), db: hot.lock.db, figures: hot.figures })
            .collect()
    }

    /// Runs HOTLOCKS RESET: forgets all waits so far.
    pub fn reset_hot_locks(&mut self) {
        self.hot_locks.clear();
    }
}

/// Whether the user may read the lock. Of a long name only the beginning is known.
fn may_read(user: &User<'_>, lock: &HotLock) -> bool {
    match lock.rest {
        None => user.may_read(&lock.name),
        Some(_) => user.may_read_all_from(&lock.name),
    }
}

/// The name as SLOWLOG would show it, if it has been cut.
fn shown(lock: &HotLock) -> Vec<u8> {
    let mut name = lock.name.to_vec();
    if let Some(rest) = lock.rest {
        name.extend_from_slice(format!("... ({} more bytes)", rest.len).as_bytes());
    }
    name
}
