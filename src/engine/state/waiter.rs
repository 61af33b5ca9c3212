//! A client that waits.

use super::clock::{Moment, Steady};
use super::memory::LockId;
use crate::core::wait;
use crate::engine::request::Terms;
use crate::ffi::Text;

/// A client that waits for a lock.
pub type Waiter = wait::Waiter<LockId, WaitRequest>;

/// What a waiter asked for.
#[derive(Clone)]
pub struct WaitRequest {
    /// The owner's name, as the server keeps it.
    pub name: Text,
    pub terms: Terms,
    pub since: Steady,
    /// When its time is up, and when the alarm for that rings.
    pub until: Option<(Steady, Moment)>,
    /// The client.
    pub client: u64,
}
