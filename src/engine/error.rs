//! Why a use case fails.

use crate::core::wait::Denied;
use crate::core::{NotHeld, OwnerId, RequestError, TooMany};
use crate::store;

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
    /// A timeout is beyond what can be counted.
    InvalidTimeout,
    /// To wait would be to wait for oneself, over these owners; none but the
    /// first when it is the owner's own read hold that stands in the way.
    Deadlock(Vec<OwnerId>),
    /// Another owner's upgrade waits already: each would wait for the other.
    OtherUpgrade(OwnerId),
    /// As many wait as may.
    TooManyWaiters,
    /// There is no connection that a hold could be bound to.
    NoSession,
    /// The keys are not as they should be.
    Store(store::Error),
    /// The lock's slot is served elsewhere: the error that says so.
    Elsewhere(String),
    /// The module is being unloaded.
    Stopped,
    /// The engine is at work: another module calls from a key event that the server raised
    /// in the middle of that.
    Busy,
    /// A panic ended the request; the log says which.
    Internal,
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

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        match error {
            RequestError::NotHeld(reason) => reason.into(),
            RequestError::TooMany(reason) => reason.into(),
        }
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Error {
        match denied {
            Denied::TooManyWaiters => Error::TooManyWaiters,
            Denied::OtherUpgrade(other) => Error::OtherUpgrade(other),
            Denied::Deadlock(circle) => Error::Deadlock(circle),
        }
    }
}
