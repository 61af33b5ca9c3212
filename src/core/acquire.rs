//! Who gets a hold: RLOCK, WLOCK, UPGRADE and DOWNGRADE (`docs/commands/`).

use super::{End, Holds, Kind, Lock, Mode, NotHeld, Others, TooMany, MAX_READS};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The kind of hold.
    pub kind: Kind,
    /// The end of the new hold's lease.
    pub lease: End,
    /// ONCE: an owner that has a live hold of this kind gets no second one,
    /// the lease of the one that is meant is lengthened instead.
    pub once: bool,
    /// The rank of the read hold that ONCE means, counted from 0; None: the highest.
    pub meant: Option<usize>,
}

/// A writer's reservation, as the owner who asks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// None stands.
    None,
    /// It is the owner's own.
    Own,
    /// It is another owner's.
    Other,
}

/// What stands in the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The holds of others, or the owner's own read holds.
    Held,
    /// Another owner's reservation, on a lock that is free.
    Reserved,
    /// Those who wait already.
    Queue,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Granted: the lock as it shall be.
    Granted(Lock),
    /// Not now.
    Refused(Refusal),
}

/// Why a request fails, and waiting would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// UPGRADE, of an owner without a live read hold.
    NotHeld(NotHeld),
    /// The owner has as many holds as there may be.
    TooMany(TooMany),
}

impl From<TooMany> for RequestError {
    fn from(error: TooMany) -> RequestError {
        RequestError::TooMany(error)
    }
}

/// Decides a request for a read or a write hold.
pub fn acquire(
    lock: &Lock,
    request: Request,
    reservation: Reservation,
) -> Result<Verdict, TooMany> {
    if let Some(refusal) = refusal(lock, request.kind, reservation) {
        return Ok(Verdict::Refused(refusal));
    }
    let mut after =
        if lock.is_free() { Lock { end: request.lease, ..Lock::free() } } else { lock.clone() };
    after.lengthen(request.lease);
    match request.kind {
        Kind::Read => {
            let highest = after.own.reads.len().saturating_sub(1);
            let meant = request.meant.unwrap_or(highest).min(highest);
            match after.own.reads.get_mut(meant) {
                Some(meant) if request.once => *meant = request.lease.max(*meant),
                _ => push_read(&mut after.own, request.lease)?,
            }
        }
        Kind::Write if request.once && after.own.writes > 0 => {}
        Kind::Write => push_write(&mut after.own)?,
    }
    Ok(Verdict::Granted(after))
}

fn refusal(lock: &Lock, kind: Kind, reservation: Reservation) -> Option<Refusal> {
    let reserved = reservation == Reservation::Other;
    match (lock.mode(), kind) {
        // A writer may do what it likes, nobody else may do anything.
        (Some(Mode::Write), _) => (lock.own.writes == 0).then_some(Refusal::Held),
        // A reader gets in again whoever waits: it must never wait for a
        // writer that waits for it.
        (Some(Mode::Read), Kind::Read) => {
            (reserved && lock.own.reads.is_empty()).then_some(Refusal::Held)
        }
        // Also for an owner whose own read hold is the only one: UPGRADE is
        // the way.
        (Some(Mode::Read), Kind::Write) => Some(Refusal::Held),
        (None, _) => reserved.then_some(Refusal::Reserved),
    }
}

/// Decides an UPGRADE, a request for a write hold: from read to write, when nobody
/// else reads. The read holds stay inside the write hold.
pub fn upgrade(lock: &Lock, request: Request) -> Result<Verdict, RequestError> {
    if lock.own.reads.is_empty() {
        return Err(RequestError::NotHeld(NotHeld::of(lock, Kind::Read)));
    }
    if lock.own.writes == 0 && lock.others != Others::None {
        return Ok(Verdict::Refused(Refusal::Held));
    }
    let mut after = lock.clone();
    if lock.own.writes == 0 {
        // The write lease begins with the holds that are left, not with what a
        // holder that is gone may have left on the hash.
        after.end = lock.latest_read();
    }
    after.lengthen(request.lease);
    if !request.once || lock.own.writes == 0 {
        push_write(&mut after.own)?;
    }
    Ok(Verdict::Granted(after))
}

/// Decides a DOWNGRADE: all write holds become one read hold, or, where the
/// owner reads already, lengthen its highest.
pub fn downgrade(lock: &Lock, lease: End) -> Result<Lock, NotHeld> {
    if lock.own.writes == 0 {
        return Err(NotHeld::of(lock, Kind::Write));
    }
    let mut after = lock.clone();
    after.own.writes = 0;
    match after.own.reads.last_mut() {
        Some(highest) => *highest = lease.max(*highest),
        None => after.own.reads.push(lease),
    }
    after.end = match after.mode() {
        Some(Mode::Write) => lock.end.max(lease),
        _ => after.latest_read(),
    };
    Ok(after)
}

fn push_read(own: &mut Holds, lease: End) -> Result<(), TooMany> {
    if own.reads.len() as u64 >= MAX_READS {
        return Err(TooMany::Reads);
    }
    own.reads.push(lease);
    Ok(())
}

fn push_write(own: &mut Holds) -> Result<(), TooMany> {
    // Redis counts in signed 64-bit integers, and so do Redisson's scripts.
    if own.writes >= i64::MAX as u64 {
        return Err(TooMany::Writes);
    }
    own.writes += 1;
    Ok(())
}
