//! Giving back: UNLOCK (SPEC section 3).

use super::{Kind, Lock, Mode};

/// Which hold UNLOCK gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The kind that the owner holds; if both, a read hold.
    Any,
    /// One hold of this kind.
    One(Kind),
    /// Every hold of the owner.
    All,
}

/// Why an owner has nothing to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// Nobody holds the lock.
    Free,
    /// The owner holds it, but in this mode.
    OtherMode(Mode),
    /// Others hold it, in this mode.
    Others(Mode),
}

impl NotHeld {
    /// Why the owner lacks a hold of the kind `missing`.
    pub(super) fn of(lock: &Lock, missing: Kind) -> NotHeld {
        match lock.mode() {
            None => NotHeld::Free,
            Some(mode) if lock.own.is_empty() => NotHeld::Others(mode),
            Some(_) => NotHeld::OtherMode(match missing {
                Kind::Read => Mode::Write,
                Kind::Write => Mode::Read,
            }),
        }
    }
}

/// Decides an UNLOCK: the lock as it shall be.
pub fn release(lock: &Lock, which: Which) -> Result<Lock, NotHeld> {
    let mut after = lock.clone();
    match which {
        Which::All if lock.own.is_empty() => return Err(NotHeld::of(lock, Kind::Read)),
        Which::All => {
            after.own.reads.clear();
            after.own.writes = 0;
        }
        Which::One(Kind::Write) => give_write(&mut after)?,
        Which::One(Kind::Read) => give_read(&mut after)?,
        Which::Any if lock.own.reads.is_empty() && lock.own.writes > 0 => give_write(&mut after)?,
        Which::Any => give_read(&mut after)?,
    }
    match after.mode() {
        // Never shortened: it is the write lease.
        Some(Mode::Write) => {}
        Some(Mode::Read) => after.end = after.latest_read(),
        None => after = Lock::free(),
    }
    Ok(after)
}

fn give_read(lock: &mut Lock) -> Result<(), NotHeld> {
    match lock.own.reads.pop() {
        Some(_) => Ok(()),
        None => Err(NotHeld::of(lock, Kind::Read)),
    }
}

fn give_write(lock: &mut Lock) -> Result<(), NotHeld> {
    if lock.own.writes == 0 {
        return Err(NotHeld::of(lock, Kind::Write));
    }
    lock.own.writes -= 1;
    Ok(())
}
