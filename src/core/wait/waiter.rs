//! What a waiter is called, and what it wants.

use std::sync::Arc;

/// The name of an owner, shared by all that mention it.
pub type OwnerId = Arc<[u8]>;

/// A waiter, numbered in the order of arrival over the whole server.
pub type WaiterId = u64;

/// What a waiter wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// From read to write. Served before all others, whatever the policy, for
    /// as a reader it holds them up.
    Upgrade,
    /// A read hold.
    Read,
    /// A write hold.
    Write,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// First come, first served; readers at the head get in together.
    #[default]
    Fifo,
    /// Readers join a lock that is held by readers, whoever waits.
    PreferReaders,
    /// Waiting writers are served before waiting readers.
    PreferWriters,
}
