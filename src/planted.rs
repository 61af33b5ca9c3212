//! Ten bugs to test the tests with. `make soak` must find each of them (`tests/robustness`). Only
//! builds with the feature `planted-bugs` have them, and such a build has at most one at a time.

/// A bug that a build can have on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Every eighth waiter is never granted.
    LostWakeUp = 1,
    /// A read hold whose lease is over counts as live.
    LapsedReaderCounts,
    /// The end of a lock is propagated as a duration, which starts anew where it is applied.
    RelativeLease,
    /// The return of a session hold takes a second hold of its owner with it.
    ReleasedTwice,
    /// The last fencing token is not propagated, and the clock does not lead the next one.
    RepeatedToken,
    /// RLOCK and WLOCK are accepted on a replica.
    GrantOnReplica,
    /// The waiter behind one that left the queue is never granted.
    LeftBehind,
    /// A waiter for several locks gets only the first half of them, and is told that it has all.
    HalfASet,
    /// A session hold is bound to the connection of the session before it.
    BoundToAnother,
    /// RENEW of a lock that is free gives the owner a write hold.
    RenewRevives,
}

/// Whether [`Bug::LeftBehind`] or [`Bug::LostWakeUp`] keeps this waiter from its grant.
pub fn is_left_behind(id: u64) -> bool {
    is_planted(Bug::LostWakeUp) && id % 8 == 0 || is_planted(Bug::LeftBehind) && choice::is_left(id)
}

/// [`Bug::LeftBehind`]: a waiter left a queue without a grant. `next`: the one that is its first
/// now.
pub fn leave_behind(next: impl FnOnce() -> Option<u64>) {
    if is_planted(Bug::LeftBehind) {
        next().into_iter().for_each(choice::leave);
    }
}

/// The connection that a session hold is bound to: `client`, or with [`Bug::BoundToAnother`] that
/// of the session before.
pub fn client_to_bind(client: u64) -> u64 {
    if is_planted(Bug::BoundToAnother) {
        choice::session_before(client)
    } else {
        client
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod choice {
    use super::Bug;

    /// Whether the server runs with this bug. No shipped build has one.
    pub const fn is_planted(_: Bug) -> bool {
        false
    }

    pub const fn is_left(_: u64) -> bool {
        false
    }

    pub const fn leave(_: u64) {}

    pub const fn session_before(client: u64) -> u64 {
        client
    }
}

#[cfg(feature = "planted-bugs")]
mod choice {
    use super::Bug;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
    use std::sync::Mutex;

    const ALL: [(&str, Bug); 10] = [
        ("lost-wake-up", Bug::LostWakeUp),
        ("lapsed-reader-counts", Bug::LapsedReaderCounts),
        ("relative-lease", Bug::RelativeLease),
        ("released-twice", Bug::ReleasedTwice),
        ("repeated-token", Bug::RepeatedToken),
        ("grant-on-replica", Bug::GrantOnReplica),
        ("left-behind", Bug::LeftBehind),
        ("half-a-set", Bug::HalfASet),
        ("bound-to-another", Bug::BoundToAnother),
        ("renew-revives", Bug::RenewRevives),
    ];

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Whether the server runs with this bug.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }

    static LEFT: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

    pub fn is_left(id: u64) -> bool {
        LEFT.lock().is_ok_and(|left| left.contains(&id))
    }

    pub fn leave(id: u64) {
        if let Ok(mut left) = LEFT.lock() {
            left.insert(id);
        }
    }

    static LAST_SESSION: AtomicU64 = AtomicU64::new(0);

    pub fn session_before(client: u64) -> u64 {
        match LAST_SESSION.swap(client, Ordering::Relaxed) {
            0 => client,
            before => before,
        }
    }

    /// Plants the bug of this name. False: there is none.
    pub fn plant(name: &str) -> bool {
        let bug = ALL.iter().find(|(known, _)| *known == name);
        bug.inspect(|(_, bug)| PLANTED.store(*bug as u8, Ordering::Relaxed)).is_some()
    }
}

pub use choice::is_planted;
#[cfg(feature = "planted-bugs")]
pub use choice::plant;
