//! Errors of the store.

/// Why a command cannot use the keys of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A key of the lock has a wrong type, or a content that the module never writes.
    WrongType(&'static str),
    /// A new read hold needs a timeout key that belongs to the lock of this name.
    Clash(Vec<u8>),
    /// A command names the lock of this name twice.
    NamedTwice(Vec<u8>),
    /// The hash counts more than 65,535 read holds of one owner, or the command would read more
    /// than 1,000,000 timeout keys.
    TooManyReads,
    /// The lock's name is not allowed, for this reason.
    BadLockName(&'static str),
    /// The name of the owner is not allowed, for this reason.
    BadOwner(&'static str),
    /// The keys of the lock would not be in one slot of the cluster.
    CrossSlot,
    /// The lock's slot is being migrated, or another node serves it.
    TryAgain,
    /// The cluster is down, with this text.
    ClusterDown(&'static str),
}

impl Error {
    /// Whether the cluster does not allow this node to use the keys now. The keys may be here all
    /// the same.
    pub fn is_unserved(&self) -> bool {
        matches!(self, Error::TryAgain | Error::ClusterDown(_))
    }
}
