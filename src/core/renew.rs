//! Living longer: RENEW (`docs/commands/renew.md`).

use super::{End, Kind, Lock, NotHeld};

/// Decides a RENEW: every live hold of the owner ends at the later of its end
/// and `lease`, and the lock follows.
pub fn renew(lock: &Lock, lease: End) -> Result<Lock, NotHeld> {
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
