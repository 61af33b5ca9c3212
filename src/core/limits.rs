//! How many there may be.

/// Why a rule refuses to count further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The owner has [`MAX_READS`] read holds on the lock.
    Reads,
    /// The owner's write holds are at the limit of a 64-bit integer.
    Writes,
    /// The next fencing token would not be below 2^53.
    Tokens,
}

/// The read holds that one owner may have on one lock. Each is a key of its
/// own and every command of that owner looks at them all, so a count beyond
/// this (only a foreign hand can write one) must not keep the server busy.
pub const MAX_READS: u64 = 65_535;
