//! How a wait ends.

use crate::engine::error::Error;

/// How the wait of a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The client got so many holds, one for each of its locks.
    Granted(u64),
    /// The time was up. The client got the integer.
    TimedOut,
    /// CLIENT UNBLOCK ended the wait. The client got the integer.
    Unblocked,
    /// The client got this error, for example a deadlock or a redirect.
    Failed(Error),
    /// The client got this error before it began to wait. It was never blocked.
    Denied(Error),
    /// The connection closed, or the server itself answered the client with an error: for CLIENT
    /// UNBLOCK … ERROR, or because it became a replica.
    Disconnected,
    /// The client did not get the module's answer, whatever that was: the connection closed in that
    /// moment, or the client was unblocked by another hand.
    Lost,
}

impl WaitEnd {
    /// Whether it counts as a deadlock.
    pub fn is_deadlock(&self) -> bool {
        match self {
            WaitEnd::Failed(error) | WaitEnd::Denied(error) => error.is_deadlock(),
            _ => false,
        }
    }
}
