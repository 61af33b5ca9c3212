//! Giving back: UNLOCK (`docs/commands/unlock.md`).

use super::{Holds, Kind, Lock, Mode, Others};

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

/// The kind of hold that UNLOCK gives back; None: all of them.
pub fn kind_to_release(lock: &Lock, which: Which) -> Option<Kind> {
    match which {
        Which::All => None,
        Which::One(kind) => Some(kind),
        Which::Any if lock.own.reads.is_empty() && lock.own.writes > 0 => Some(Kind::Write),
        Which::Any => Some(Kind::Read),
    }
}

/// Decides an UNLOCK: the lock as it shall be. `rank`: which of the owner's
/// read holds goes, counted from 0; None: the highest.
pub fn release(lock: &Lock, which: Which, rank: Option<usize>) -> Result<Lock, NotHeld> {
    let kind = kind_to_release(lock, which);
    if lock.others == Others::None && is_last(&lock.own, kind) {
        return Ok(Lock::free());
    }
    let mut after = lock.clone();
    match kind {
        None if lock.own.is_empty() => return Err(NotHeld::of(lock, Kind::Read)),
        None => {
            after.own.reads.clear();
            after.own.writes = 0;
        }
        Some(Kind::Write) => give_write(&mut after)?,
        Some(Kind::Read) => give_read(&mut after, rank)?,
    }
    match after.mode() {
        // Never shortened: it is the write lease.
        Some(Mode::Write) => {}
        Some(Mode::Read) => after.end = after.latest_read(),
        None => after = Lock::free(),
    }
    Ok(after)
}

/// Whether the owner has only what it gives back.
fn is_last(own: &Holds, kind: Option<Kind>) -> bool {
    match kind {
        None => !own.is_empty(),
        Some(Kind::Write) => own.writes == 1 && own.reads.is_empty(),
        Some(Kind::Read) => own.writes == 0 && own.reads.len() == 1,
    }
}

fn give_read(lock: &mut Lock, rank: Option<usize>) -> Result<(), NotHeld> {
    let Some(highest) = lock.own.reads.len().checked_sub(1) else {
        return Err(NotHeld::of(lock, Kind::Read));
    };
    lock.own.reads.remove(rank.unwrap_or(highest).min(highest));
    Ok(())
}

fn give_write(lock: &mut Lock) -> Result<(), NotHeld> {
    if lock.own.writes == 0 {
        return Err(NotHeld::of(lock, Kind::Write));
    }
    lock.own.writes -= 1;
    Ok(())
}
