//! The rules of the lock, pure: no server, no clock, no I/O. Time comes in as
//! a parameter, a lock as a [`Lock`] value, and what comes out is the lock as
//! it shall be. Whoever wants to know who may hold what reads this folder and
//! nothing else.
#![forbid(unsafe_code)]

mod acquire;
mod announce;
mod fence;
mod lock;
mod release;
mod renew;
mod request;
mod room;
#[cfg(test)]
mod tests;
mod time;
pub mod wait;

pub use acquire::{acquire, downgrade, upgrade, Kind, Refusal, Request, Reservation, Verdict};
pub use announce::{announcement, Announcement};
pub use fence::{token, LastToken, Token};
pub use lock::{Ends, Holds, Lock, Mode, Others};
pub use release::{kind_to_release, release, NotHeld, Which};
pub use renew::renew;
pub use request::{decide, lets_others_in, reservation, RequestError, Terms};
pub use room::give_room_back;
pub use time::{End, Millis};
pub use wait::{OwnerId, Policy, WaiterId, Want};

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
