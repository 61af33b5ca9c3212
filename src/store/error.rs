//! Why the keys cannot be used.

/// Why the keys cannot be used as the lock that they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A key has another type, or a content that the module never writes.
    WrongType(&'static str),
    /// A timeout key that is needed belongs to the lock of this name.
    Clash(Vec<u8>),
    /// The hash counts more read holds of one owner than are supported.
    TooManyReads,
    /// The lock's name is refused, for this reason.
    BadLockName(&'static str),
    /// The owner is refused, for this reason.
    BadOwner(&'static str),
    /// The lock's keys would not share a slot.
    CrossSlot,
    /// The lock's slot is being migrated, or another node serves it.
    TryAgain,
    /// The cluster is down, as this says.
    ClusterDown(&'static str),
}

impl Error {
    /// Whether the keys cannot be looked at because the cluster does not allow it now. They
    /// may well be here.
    pub fn is_unserved(&self) -> bool {
        matches!(self, Error::TryAgain | Error::ClusterDown(_))
    }
}
