//! A request for a hold, and its answer.

use crate::core::{Millis, Token, Want};
use crate::ffi::Str;

/// A request for a hold: RLOCK, WLOCK or UPGRADE.
pub struct AcquireRequest<'a> {
    /// The name of the lock.
    pub key: &'a Str,
    /// The owner that asks.
    pub owner: &'a Str,
    /// The kind of hold.
    pub want: Want,
    /// The lease of the hold in ms, 1 or more.
    pub lease: Millis,
    /// ONCE: an owner that has a hold of this kind gets no second one.
    pub once: bool,
    /// SESSION: the hold is bound to the client's connection.
    pub session: bool,
    /// FENCE: the grant comes with a fencing token.
    pub fence: bool,
    /// RESERVE: a refused request leaves a reservation for so many ms, 1 or more.
    pub reserve: Option<Millis>,
    /// BLOCK: a refused request waits for at most so many ms. 0: without a limit.
    pub block: Option<Millis>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has the hold, and the fencing token if it asked for one.
    Held(Option<Token>),
    /// Refused. The ms until the holds or the reservation in the way end at the latest; 0 while
    /// other waiters are being served. None: they never end by themselves.
    Refused(Option<Millis>),
    /// The client is blocked, and its answer follows.
    Waiting,
}

/// The parts of a request that a later try needs again.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub want: Want,
    pub lease: Millis,
    pub once: bool,
    pub fence: bool,
    /// The id of the client that the hold is to be bound to.
    pub session: Option<u64>,
}
