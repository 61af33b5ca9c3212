//! How waiters and owners are named, and what a waiter wants.

use std::sync::Arc;

/// The name of an owner. Its copies share one allocation.
pub type OwnerId = Arc<[u8]>;

/// The number of a waiter. Waiters are numbered by arrival, over all locks: a later waiter has
/// a larger number. The first is 1.
pub type WaiterId = u64;

/// What a waiter wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// To turn its read hold into a write hold. An upgrade is served before all others under
    /// every policy, because its read hold keeps every writer out.
    Upgrade,
    /// A read hold.
    Read,
    /// A write hold.
    Write,
}

/// What a waiter waits for: a kind of hold on a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<L> {
    /// The lock.
    pub lock: L,
    /// The kind of request.
    pub want: Want,
}

/// Whether a waiter waits for other locks as well. Such a waiter is called joint: it is granted
/// all its locks in one step (MLOCK).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Joint {
    /// It waits for one lock.
    #[default]
    No,
    /// It wants to read all its locks.
    Reads,
    /// It wants to write one of its locks at least. Under prefer-writers it goes among the
    /// writers in all its queues: if it were a reader in one and a writer in another, two
    /// joint waiters could each be ahead of the other.
    Writes,
}

impl Joint {
    /// Of a request for these places.
    pub fn of<L>(places: &[Place<L>]) -> Joint {
        match places {
            [] | [_] => Joint::No,
            places if places.iter().any(|place| place.want == Want::Write) => Joint::Writes,
            _ => Joint::Reads,
        }
    }
}

/// The order of service. A new policy: see the text of the module `core::wait`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served. Readers next to each other at the head get in together.
    #[default]
    Fifo,
    /// Readers join a lock that is held by readers, ahead of waiting writers and in spite of
    /// reservations. Only a waiting upgrade holds them up.
    PreferReaders,
    /// Waiting writers are served before waiting readers.
    PreferWriters,
}

impl Policy {
    /// Whether a reader joins the readers that hold a lock, in spite of waiters and of
    /// another owner's reservation.
    pub fn lets_readers_join(self) -> bool {
        match self {
            Policy::PreferReaders => true,
            Policy::Fifo | Policy::PreferWriters => false,
        }
    }

    /// Whether waiting writers are served before waiting readers.
    pub fn puts_writers_first(self) -> bool {
        match self {
            Policy::PreferWriters => true,
            Policy::Fifo | Policy::PreferReaders => false,
        }
    }
}
