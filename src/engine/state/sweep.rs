//! The state of the sweep: the search for locks that no command has named since the start.

use super::clock::Moment;
use crate::ffi;

/// The sweep, running or not.
#[derive(Default)]
pub struct Sweep {
    pub running: Option<Sweeping>,
    /// Whether the last sweep has walked over all keys.
    pub is_done: bool,
    /// Whether another sweep follows this one: keys came that this one may have missed.
    pub again: bool,
}

impl Sweep {
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// When the next step is due. None: no sweep runs.
    pub fn due(&self) -> Option<Moment> {
        self.running.as_ref().map(|sweeping| sweeping.due)
    }
}

/// A sweep that runs.
pub struct Sweeping {
    /// The database that the walk is in.
    pub db: i32,
    pub walk: ffi::Sweep,
    /// The number of keys in the databases that are finished.
    pub keys_done: u64,
    /// The number of keys in all databases when the sweep began. None until its first step.
    pub total_keys: Option<u64>,
    /// The names of hashes that are not examined yet.
    pub found: Vec<Vec<u8>>,
    /// Whether the walk through this database has more steps.
    pub has_more: bool,
    /// When the next step is due.
    pub due: Moment,
}
