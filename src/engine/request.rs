//! A request for a hold, and its answer.

use super::state::Grant;
use crate::core::{Millis, Token, Want};
use crate::ffi::Str;
use smallvec::SmallVec;

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

/// A request for holds on several locks in one step: MLOCK.
pub struct JointRequest<'a> {
    /// The owner that asks.
    pub owner: &'a Str,
    /// The names of the locks, each with the kind of hold. No name is in it twice.
    pub places: Vec<(&'a Str, Want)>,
    /// As in [`AcquireRequest`], for each hold.
    pub lease: Millis,
    pub once: bool,
    pub session: bool,
    /// FENCE: the grant comes with a fencing token for each write hold.
    pub fence: bool,
    pub block: Option<Millis>,
}

/// Fencing tokens, in the order of the locks. Empty: the request did not ask for them.
pub type Tokens = SmallVec<[Token; 1]>;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner has the holds, as many as the request has locks.
    Held {
        /// The number of holds.
        holds: u64,
        /// The fencing tokens.
        tokens: Tokens,
    },
    /// Refused. The ms until the holds or the reservation in the way end at the latest; 0 while
    /// other waiters are being served. None: they never end by themselves.
    Refused(Option<Millis>),
    /// The client is blocked, and its answer follows.
    Waiting,
}

impl Acquired {
    /// The answer to a request that was granted this.
    pub fn held(grants: &[Grant]) -> Acquired {
        let tokens = grants.iter().filter_map(|grant| grant.token).collect();
        Acquired::Held { holds: grants.len() as u64, tokens }
    }
}

/// The parts of a request that a later try needs again. They are the same for all its locks. What
/// it wants of each lock is in its places.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub lease: Millis,
    pub once: bool,
    pub fence: bool,
    /// The id of the client that the hold is to be bound to.
    pub session: Option<u64>,
}
