//! The use cases: look at the lock, ask the rules, carry out. The only path on
//! which a lock changes.
//!
//! What lives in memory here is what dies with the process anyway: who waits,
//! which holds are bound to a connection, and when to look at a lock again.

mod acquire;
mod choice;
mod deadlock;
mod deliveries;
mod due;
mod error;
mod external;
mod fence;
mod garbage;
mod inspect;
mod intervals;
mod last_owner;
mod pass;
mod readers;
mod recovery;
mod release;
mod request;
mod returns;
mod schedule;
mod serve;
mod sessions;
mod settings;
mod slots;
mod state;
mod sweep;
mod time;
mod tracking;
mod transaction;
mod unserved;
mod wait;

pub use error::Error;
pub use external::Change;
pub use inspect::{Holder, LockInfo, QueueLength, WaiterInfo};
pub use request::{AcquireRequest, Acquired};
pub use state::{Answer, Moment, Progress, Settings, Statistics};

use crate::core::wait::WaitList;
use crate::core::{End, Millis};
use crate::store::Store;
use state::{
    Clock, Deliveries, Garbage, LockId, Memory, Returns, Sweep, Timers, TrackedHolds, Unserved,
    WaitRequest,
};

/// The use cases and what they remember.
#[derive(Default)]
pub struct Engine {
    settings: Settings,
    /// What has happened so far.
    pub statistics: Statistics,
    /// The locks.
    memory: Memory,
    /// Locks that are forgotten, and whose memory is not given back yet.
    garbage: Garbage,
    timers: Timers,
    /// Whether a step ended in a panic since this was last asked.
    panicked: bool,
    clock: Clock,
    waits: WaitList<LockId, WaitRequest>,
    deliveries: Deliveries,
    tracked: TrackedHolds,
    returns: Returns,
    sweep: Sweep,
    unserved: Unserved,
}

impl Engine {
    /// One that remembers nothing.
    pub fn new(settings: Settings) -> Engine {
        let mut engine = Engine::default();
        engine.set(settings);
        engine
    }
}

fn end_of(store: &Store<'_>, lease: Millis) -> Result<End, Error> {
    End::of_lease(store.now(), lease).ok_or(Error::InvalidExpire)
}
