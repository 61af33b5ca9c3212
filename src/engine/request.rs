//! A request for a hold, and its answer.

use crate::core::{Millis, Token, Want};
use crate::ffi::Str;

/// A request for a hold.
pub struct AcquireRequest<'a> {
    /// The lock.
    pub key: &'a Str,
    /// Who asks.
    pub owner: &'a Str,
    /// What for.
    pub want: Want,
    /// How long the hold lives, in ms.
    pub lease: Millis,
    /// No second hold of this kind.
    pub once: bool,
    /// Bind the hold to the connection.
    pub session: bool,
    /// Hand out a fencing token.
    pub fence: bool,
    /// When refused, leave a reservation that stands for so many ms.
    pub reserve: Option<Millis>,
    /// When refused, wait for so many ms; 0: without end.
    pub block: Option<Millis>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has the hold, and the fencing token that it asked for.
    Held(Option<Token>),
    /// Not now: the ms until what stands in the way ends at the latest; None
    /// when it never ends by itself.
    Refused(Option<Millis>),
    /// The client is blocked, and its answer will come.
    Waiting,
}

/// A request as it is tried, at once or when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub want: Want,
    pub lease: Millis,
    pub once: bool,
    pub fence: bool,
    /// The client that the hold is to be bound to.
    pub session: Option<u64>,
}
