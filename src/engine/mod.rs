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
mod held;
mod hot_locks;
mod inspect;
mod intervals;
mod joint;
mod last_owner;
mod listing;
mod log;
mod open_locks;
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
mod wait_over;

pub use error::{name, Error};
pub use external::Change;
pub use hot_locks::HotLockInfo;
pub use inspect::{Holder, LockInfo, QueueLength, WaiterInfo};
pub use listing::{ListRequest, Listed};
pub use request::{AcquireRequest, Acquired, JointRequest};
pub use state::{Answer, Cut, Event, LogEntry, Moment, Progress, Record, Settings, Statistics};

use crate::core::wait::WaitList;
use crate::core::{End, HotLocks, Millis};
use crate::store::Store;
use state::{
    Clock, Deliveries, Garbage, HotLock, Lines, LockId, Log, LongHold, Memory, Released, Returns,
    Sweep, Timers, TrackedHolds, Unserved, WaitRequest,
};

/// The use cases and what they remember.
#[derive(Default)]
pub struct Engine {
    settings: Settings,
    /// The statistics for INFO.
    pub statistics: Statistics,
    log: Log,
    /// The lines about deadlocks in the server's log.
    lines: Lines,
    /// What is remembered of each lock.
    memory: Memory,
    /// The locks that were given back in the present work and have waiters.
    released: Vec<Released>,
    /// The locks that were held for long and became free in the present work.
    long_holds: Vec<LongHold>,
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
    /// The locks that were waited for longest.
    hot_locks: HotLocks<HotLock>,
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
