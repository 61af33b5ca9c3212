//! A waiter and its request.

use super::clock::{Moment, Steady};
use super::log::Blocker;
use super::memory::LockId;
use crate::core::wait;
use crate::engine::request::Terms;
use crate::ffi::Text;

/// A client that waits for a lock.
pub type Waiter = wait::Waiter<LockId, WaitRequest>;

/// What a waiter asked for.
#[derive(Clone)]
pub struct WaitRequest {
    /// The name of the owner, as a string of the server's.
    pub name: Text,
    pub terms: Terms,
    pub since: Steady,
    /// When the wait times out, and when the timer for that fires. None: it waits without a limit.
    pub until: Option<(Steady, Moment)>,
    /// The id of the client.
    pub client: u64,
    /// What stood in the way when the wait began, for the log.
    pub blockers: Vec<Blocker>,
}
