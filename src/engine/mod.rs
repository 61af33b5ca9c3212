//! The use cases: look at the lock, ask the rules, carry out. The only path on
//! which a lock changes.

mod acquire;
mod inspect;
mod release;

pub use acquire::{acquire, downgrade, upgrade, Acquire, Acquired};
pub use inspect::{inspect, Holder, Picture};
pub use release::{force, release, renew};

use crate::core::{End, Millis, NotHeld, TooMany};
use crate::store::{self, Store};

/// Why a use case ended without doing what was asked. Nothing has changed
/// then, but lapsed holds may have been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The owner has no such live hold.
    NotHeld(NotHeld),
    /// There are too many holds.
    TooMany(TooMany),
    /// A lease (or a reservation's time) is below 1 ms or beyond the server's
    /// expiry.
    InvalidExpire,
    /// The keys are not as they should be.
    Store(store::Error),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        Error::Store(error)
    }
}

impl From<NotHeld> for Error {
    fn from(reason: NotHeld) -> Error {
        Error::NotHeld(reason)
    }
}

impl From<TooMany> for Error {
    fn from(reason: TooMany) -> Error {
        Error::TooMany(reason)
    }
}

fn end_of(store: &Store<'_>, lease: Millis) -> Result<End, Error> {
    End::of_lease(store.now(), lease).ok_or(Error::InvalidExpire)
}
