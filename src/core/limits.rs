//! Limits of counts.

/// Which limit a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The owner has [`MAX_READS`] read holds on the lock.
    Reads,
    /// The owner has 2^63 - 1 write holds on the lock.
    Writes,
    /// The next fencing token would not be below 2^53.
    Tokens,
}

/// How many read holds one owner may have on one lock. Each read hold is a key, and every
/// command of the owner reads all of them. So a larger count, which an external change can
/// write into the hash, must not keep the server busy.
pub const MAX_READS: u64 = 65_535;
