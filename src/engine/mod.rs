//! The use cases. Each takes a snapshot of the lock, asks the rules of `core` and writes the
//! result. No other code changes a lock.
//!
//! The engine remembers only what ends with the process: waiters, the connections of session holds,
//! tokens and timers.

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
    /// The statistics for INFO.
    pub statistics: Statistics,
    /// What is remembered of each lock.
    memory: Memory,
    /// Memory of forgotten locks that is not freed yet.
    garbage: Garbage,
    timers: Timers,
    /// Whether a step ended in a panic since the last [`Engine::take_panicked`].
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
    /// An engine that remembers no lock.
    pub fn new(settings: Settings) -> Engine {
        let mut engine = Engine::default();
        engine.set(settings);
        engine
    }
}

fn end_of(store: &Store<'_>, lease: Millis) -> Result<End, Error> {
    End::of_lease(store.now(), lease).ok_or(Error::InvalidExpire)
}
