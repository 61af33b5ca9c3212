//! Locks that became free in the present work.

use super::memory::{LockId, Place};
use super::tenure::Held;
use crate::core::{Millis, OwnerId};

/// A lock that was given back in the present work, and has waiters.
pub struct Released {
    pub place: Place,
    /// For how long it was held.
    pub held: Held,
    /// Its last holder, if the lock was held for long.
    pub owner: Option<OwnerId>,
}

/// A lock that was held for long, and is free.
pub struct LongHold {
    pub lock: LockId,
    /// For how many ms it was held.
    pub held: Millis,
    /// Its last holder; None: it is not known.
    pub owner: Option<OwnerId>,
}
