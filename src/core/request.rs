//! The decision about a request (RLOCK, WLOCK, UPGRADE) from all that matters: the lock, its
//! reservation and its waiters.

use super::{
    acquire, upgrade, End, Kind, Lock, Mode, Policy, Refusal, Request, RequestError, Reservation,
    Verdict, Want,
};

/// The details of a request, beside its kind.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The end of the new hold's lease.
    pub lease: End,
    /// Whether the option ONCE was given.
    pub once: bool,
    /// The read hold that ONCE lengthens, see [`Request::meant`].
    pub meant: Option<usize>,
}

/// Decides a request. `is_behind`: waiters hold it up
/// ([`WaitList::holds_up`](super::wait::WaitList::holds_up)).
pub fn decide(
    lock: &Lock,
    want: Want,
    terms: Terms,
    reservation: Reservation,
    is_behind: bool,
) -> Result<Verdict, RequestError> {
    let Terms { lease, once, meant } = terms;
    let request = |kind| Request { kind, lease, once, meant };
    match want {
        Want::Upgrade => upgrade(lock, request(Kind::Write)),
        _ if is_behind => Ok(Verdict::Refused(Refusal::Queue)),
        Want::Read => Ok(acquire(lock, request(Kind::Read), reservation)?),
        Want::Write => Ok(acquire(lock, request(Kind::Write), reservation)?),
    }
}

/// A lock's reservation, as the requesting `owner` sees it. `by`: the owner that has reserved
/// the lock. `lock`: the snapshot for `owner`.
pub fn reservation(
    by: Option<&[u8]>,
    owner: &[u8],
    want: Want,
    lock: &Lock,
    policy: Policy,
) -> Reservation {
    match by {
        // A holder may always read. Its read does not use up its own reservation either.
        Some(_) if want == Want::Read && !lock.own.is_empty() => Reservation::None,
        Some(by) if by == owner => Reservation::Own,
        Some(_) if want == Want::Upgrade || ignores_reservation(want, lock, policy) => {
            Reservation::None
        }
        Some(_) => Reservation::Other,
        None => Reservation::None,
    }
}

/// Whether the policy lets a reader join the readers of a lock in spite of a reservation.
fn ignores_reservation(want: Want, lock: &Lock, policy: Policy) -> bool {
    policy.lets_readers_join() && want == Want::Read && lock.mode() == Some(Mode::Read)
}

/// Whether a grant may let waiters of other owners in, so that the whole queue has to be
/// served after it, and not only the owner's other waiters. Under prefer-readers a granted
/// read hold puts the lock into read mode, and waiting readers may join in spite of a
/// reservation.
pub fn lets_others_in(want: Want, policy: Policy) -> bool {
    want == Want::Read && policy.lets_readers_join()
}
