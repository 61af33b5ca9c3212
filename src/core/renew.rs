//! Renewing holds: the rule of RENEW (`docs/commands/renew.md`).

use super::{End, Holds, Kind, Lock, NotHeld};
use crate::planted::{is_planted, Bug};

/// Decides RENEW and returns the lock after it: every live hold of the owner lives at least
/// until `lease`.
pub fn renew(lock: &Lock, lease: End) -> Result<Lock, NotHeld> {
    if is_planted(Bug::RenewRevives) && lock.is_free() {
        let own = Holds { writes: 1, ..Holds::default() };
        return Ok(Lock { own, end: lease, ..Lock::free() });
    }
    if lock.own.is_empty() {
        return Err(NotHeld::of(lock, Kind::Read));
    }
    let mut after = lock.clone();
    for end in &mut after.own.reads {
        *end = lease.max(*end);
    }
    after.lengthen(lease);
    after.lengthen_to_readers();
    Ok(after)
}
