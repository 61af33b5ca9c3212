//! Granting holds: the rules of RLOCK, WLOCK, UPGRADE and DOWNGRADE (`docs/commands/`).

use super::{End, Holds, Kind, Lock, Mode, NotHeld, Others, TooMany, MAX_READS};

/// A request for a hold.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The kind of hold.
    pub kind: Kind,
    /// The end of the new hold's lease.
    pub lease: End,
    /// ONCE: an owner that has a live hold of this kind gets no second one. The
    /// existing hold is lengthened instead.
    pub once: bool,
    /// The read hold that ONCE lengthens, as an index of [`Holds::reads`]; None, and any
    /// index beyond the last: the last.
    pub meant: Option<usize>,
}

/// A writer's reservation (the option RESERVE), as the requesting owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// There is none that concerns the request.
    None,
    /// The owner has reserved the lock.
    Own,
    /// Another owner has reserved the lock.
    Other,
}

/// Why a request is not granted now. Waiting helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Other owners hold the lock, or the owner itself reads and wants to write.
    Held,
    /// The lock is free, but another owner has reserved it.
    Reserved,
    /// Waiters are ahead of the request.
    Queue,
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is granted. This is the lock after the grant.
    Granted(Lock),
    /// The request is not granted now.
    Refused(Refusal),
}

/// Why a request fails. Waiting would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The owner of an UPGRADE has no live read hold.
    NotHeld(NotHeld),
    /// The owner has reached a limit of holds.
    TooMany(TooMany),
}

impl From<TooMany> for RequestError {
    fn from(error: TooMany) -> RequestError {
        RequestError::TooMany(error)
    }
}

/// Decides RLOCK and WLOCK. `lock`: the snapshot for the owner.
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
        // The writer may take more holds of both kinds, all other owners are refused.
        (Some(Mode::Write), _) => (lock.own.writes == 0).then_some(Refusal::Held),
        // A reader may always read again. If it had to wait for the writer that has reserved
        // the lock, and that writer waits for it, both would wait for ever.
        (Some(Mode::Read), Kind::Read) => {
            (reserved && lock.own.reads.is_empty()).then_some(Refusal::Held)
        }
        // This includes an owner that is the only reader: it has to use UPGRADE.
        (Some(Mode::Read), Kind::Write) => Some(Refusal::Held),
        (None, _) => reserved.then_some(Refusal::Reserved),
    }
}

/// Decides UPGRADE: the only reader gets a write hold beside its read holds. `request` is for
/// a write hold. `lock`: the snapshot for the owner.
pub fn upgrade(lock: &Lock, request: Request) -> Result<Verdict, RequestError> {
    if lock.own.reads.is_empty() {
        return Err(RequestError::NotHeld(NotHeld::of(lock, Kind::Read)));
    }
    if lock.own.writes == 0 && lock.others != Others::None {
        return Ok(Verdict::Refused(Refusal::Held));
    }
    let mut after = lock.clone();
    if lock.own.writes == 0 {
        // The write lease must not take over the end of a reader that is gone: the hash may
        // still have it.
        after.end = lock.latest_read();
    }
    after.lengthen(request.lease);
    if !request.once || lock.own.writes == 0 {
        push_write(&mut after.own)?;
    }
    Ok(Verdict::Granted(after))
}

/// Decides DOWNGRADE: all write holds become one read hold that ends at `lease`. If the owner
/// has read holds already, the last of them is lengthened instead.
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
    // The limit is that of HINCRBY, which Redisson's scripts use: a signed 64-bit integer.
    if own.writes >= i64::MAX as u64 {
        return Err(TooMany::Writes);
    }
    own.writes += 1;
    Ok(())
}
