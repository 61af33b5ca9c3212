//! Renewing holds: the rule of RENEW (`docs/commands/renew.md`).

use super::{End, Kind, Lock, NotHeld};
use crate::planted::{is_planted, Bug};

/// Decides RENEW and returns the lock after it: every live hold of the owner lives at least
/// until `lease`.
pub fn renew(lock: &Lock, lease: End) -> Result<Lock, NotHeld> {
    if is_planted(Bug::RenewRevives) && lock.is_free() {
        let mut revived = Lock::free();
        (revived.own.writes, revived.end) = (1, lease);
        return Ok(revived);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Holds, Mode};

    /// Others may have shortened the expiry of a lock below the end of a hold.
    #[test]
    fn the_lock_lasts_as_long_as_its_readers() {
        let own = Holds { reads: [End::At(50), End::At(900)].into_iter().collect(), writes: 0 };
        let lock = Lock { own, end: End::At(100), ..Lock::free() };
        let after = renew(&lock, End::At(200)).unwrap();
        assert_eq!(after.own.reads.as_slice(), [End::At(200), End::At(900)]);
        assert_eq!((after.mode(), after.end), (Some(Mode::Read), End::At(900)));
    }
}
