//! Giving back holds: the rule of UNLOCK (`docs/commands/unlock.md`).

use super::{Holds, Kind, Lock, Mode, Others};

/// Which holds UNLOCK gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One hold: a read hold if the owner has one, else a write hold.
    Any,
    /// One hold of this kind.
    One(Kind),
    /// Every hold of the owner.
    All,
}

/// Why an owner lacks the hold that its command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The lock is free.
    Free,
    /// The owner holds the lock, but only in this mode.
    OtherMode(Mode),
    /// Only other owners hold the lock, in this mode.
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

/// Decides UNLOCK and returns the lock after it. `rank`: which read hold is given back, as an
/// index of [`Holds::reads`]; None, and any index beyond the last: the last.
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
        // The end is the write lease, which no command shortens.
        Some(Mode::Write) => {}
        Some(Mode::Read) => after.end = after.latest_read(),
        None => after = Lock::free(),
    }
    Ok(after)
}

/// Whether the owner gives back all that it has. `kind`: None: all holds.
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
