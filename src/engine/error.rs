//! The errors of the use cases.

use crate::core::wait::Denied;
use crate::core::{NotHeld, OwnerId, RequestError, TooMany};
use crate::store;

/// Why a use case failed. Nothing has changed then, except that lapsed holds may have been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The owner has no live hold of the kind that the command needs.
    NotHeld(NotHeld),
    /// A limit is reached: the number of an owner's holds, or the largest fencing token.
    TooMany(TooMany),
    /// A lease, or the time of a reservation, is below 1 ms or does not fit the server's expiry.
    InvalidExpire,
    /// A timeout in ms does not fit the server's clock.
    InvalidTimeout,
    /// The request would wait for itself, through these owners. The first is its own. It is the
    /// only one if the owner's own read hold is in the way.
    Deadlock(Vec<OwnerId>),
    /// An upgrade of this owner waits already. Each upgrade would wait for the other.
    OtherUpgrade(OwnerId),
    /// As many clients wait as the setting `max_waiters` allows.
    TooManyWaiters,
    /// SESSION was asked for, but the command has no client connection, for example in a script.
    NoSession,
    /// The key, the owner or the lock's keys cannot be used, or the cluster does not serve them
    /// now.
    Store(store::Error),
    /// A complete error line for a waiter that this server cannot serve any more: MOVED,
    /// CLUSTERDOWN or UNBLOCKED.
    Elsewhere(String),
    /// Only a primary can tell, and this server is a replica.
    Replica,
    /// The module is being unloaded.
    Stopped,
    /// Another module called a command from a key event in the middle of the engine's own work.
    Busy,
    /// A panic ended the request. The server's log has the message of the panic.
    Internal,
}

/// How many characters of a name an error shows.
const MAX_NAME: usize = 256;

/// A name as an error shows it.
pub fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(MAX_NAME).collect()
}

impl Error {
    /// Whether it counts as a deadlock.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Error::Deadlock(_) | Error::OtherUpgrade(_))
    }

    /// Who waits for whom, if it counts as a deadlock.
    pub fn circle(&self) -> Option<String> {
        match self {
            Error::Deadlock(owners) => Some(circle(owners)),
            Error::OtherUpgrade(owner) => {
                Some(format!("{} waits to upgrade and each would wait for the other", name(owner)))
            }
            _ => None,
        }
    }
}

fn circle(owners: &[OwnerId]) -> String {
    if let [owner] = owners {
        return format!("{} reads this lock and would wait for itself", name(owner));
    }
    let next = owners.iter().cycle().skip(1);
    let waits =
        |(owner, next): (&OwnerId, &OwnerId)| format!("{} waits for {}", name(owner), name(next));
    owners.iter().zip(next).map(waits).collect::<Vec<_>>().join(", ")
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
