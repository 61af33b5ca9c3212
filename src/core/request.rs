//! What becomes of a request: RLOCK, WLOCK and UPGRADE, in its turn or behind those that
//! wait.

use super::{
    acquire, upgrade, End, Kind, Lock, Mode, Policy, Refusal, Request, RequestError, Reservation,
    Verdict, Want,
};

/// What is asked for, beside the kind of hold.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The end of the new hold's lease.
    pub lease: End,
    /// ONCE.
    pub once: bool,
    /// The rank of the read hold that ONCE means, counted from 0; None: the highest.
    pub meant: Option<usize>,
}

/// Decides a request. `is_behind`: it is held up by those that wait.
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

/// A reservation, as the owner sees it that asks. `by`: the owner whose reservation
/// stands.
pub fn reservation(
    by: Option<&[u8]>,
    owner: &[u8],
    want: Want,
    lock: &Lock,
    policy: Policy,
) -> Reservation {
    match by {
        // A holder is not held up by a reservation, nor does it consume one.
        Some(_) if want == Want::Read && !lock.own.is_empty() => Reservation::None,
        Some(by) if by == owner => Reservation::Own,
        Some(_) if want == Want::Upgrade || joins_whoever_waits(want, lock, policy) => {
            Reservation::None
        }
        Some(_) => Reservation::Other,
        None => Reservation::None,
    }
}

/// Whether the policy lets a reader join, whoever waits or has reserved.
fn joins_whoever_waits(want: Want, lock: &Lock, policy: Policy) -> bool {
    policy == Policy::PreferReaders && want == Want::Read && lock.mode() == Some(Mode::Read)
}

/// Whether all that wait are served after a grant, and not only the owner's others:
/// readers that a reservation held up may join a lock that is read now.
pub fn lets_others_in(want: Want, policy: Policy) -> bool {
    want == Want::Read && policy == Policy::PreferReaders
}
