//! The search for locks that nobody has touched yet, while it goes on.

use super::clock::Moment;
use crate::ffi;

/// The search for locks that nobody has touched yet.
#[derive(Default)]
pub struct Sweep {
    pub running: Option<Sweeping>,
    /// Whether it has ended since it was last begun.
    pub is_done: bool,
}

impl Sweep {
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// When to go on; None: it does not run.
    pub fn due(&self) -> Option<Moment> {
        self.running.as_ref().map(|sweeping| sweeping.due)
    }
}

/// How far it has come.
pub struct Sweeping {
    /// The database.
    pub db: i32,
    pub walk: ffi::Sweep,
    /// How many keys were met in the databases before.
    pub met: u64,
    /// How many there were in all when it began, once that is known.
    pub keys: Option<u64>,
    /// The hashes that were met and are yet to be looked at.
    pub found: Vec<Vec<u8>>,
    /// Whether there may be more in this database.
    pub more: bool,
    /// When to go on.
    pub due: Moment,
}
