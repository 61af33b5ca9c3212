//! The rules of the lock, pure: no server, no clock, no I/O. Time comes in as
//! a parameter, a lock as a [`Lock`] value, and what comes out is the lock as
//! it shall be. Whoever wants to know who may hold what reads this folder and
//! nothing else.
#![forbid(unsafe_code)]

mod acquire;
mod announce;
mod fence;
mod limits;
mod lock;
mod release;
mod renew;
mod request;
mod room;
#[cfg(test)]
mod tests;
mod time;
pub mod wait;

pub use acquire::{
    acquire, downgrade, upgrade, Refusal, Request, RequestError, Reservation, Verdict,
};
pub use announce::{announcement, Announcement};
pub use fence::{token, LastToken, Token};
pub use limits::{TooMany, MAX_READS};
pub use lock::{Ends, Holds, Kind, Lock, Mode, Others};
pub use release::{kind_to_release, release, NotHeld, Which};
pub use renew::renew;
pub use request::{decide, lets_others_in, reservation, Terms};
pub use room::give_room_back;
pub use time::{End, Millis};
pub use wait::{OwnerId, Policy, WaiterId, Want};
