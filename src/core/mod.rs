//! The rules of the lock. They use no server, no clock and no I/O. A rule gets a lock as a
//! [`Lock`] value and times as parameters, and returns the lock after the change. All
//! decisions about who may hold a lock are in this folder.
#![forbid(unsafe_code)]

mod acquire;
mod announce;
mod fence;
mod hot_locks;
mod limits;
mod lock;
mod release;
mod renew;
mod request;
mod room;
#[cfg(any(test, fuzzing))]
pub mod tests;
mod time;
pub mod wait;

pub use acquire::{
    acquire, downgrade, upgrade, Refusal, Request, RequestError, Reservation, Verdict,
};
pub use announce::{announcement, Announcement};
pub use fence::{token, LastToken, Token};
pub use hot_locks::{Event, EventEnd, Figures, HotLocks};
pub use limits::{TooMany, MAX_READS};
pub use lock::{Ends, Holds, Kind, Lock, Mode, Others};
pub use release::{kind_to_release, release, NotHeld, Which};
pub use renew::renew;
pub use request::{decide, lets_others_in, reservation, Terms};
pub use room::give_room_back;
pub use time::{End, Millis};
pub use wait::{Joint, OwnerId, Policy, WaiterId, Want};
