//! The use cases: look at the lock, ask the rules, carry out. The only path on
//! which a lock changes.
//!
//! What lives in memory here is what dies with the process anyway: who waits,
//! which holds are bound to a connection, and when to look at a lock again.

mod acquire;
mod choice;
mod clock;
mod deadlock;
mod deliveries;
mod due;
mod error;
mod external;
mod fence;
mod histogram;
mod inspect;
mod intervals;
mod last_owner;
mod memory;
mod pass;
mod readers;
mod release;
mod returns;
mod schedule;
mod serve;
mod sessions;
mod settings;
mod slab;
mod slots;
mod statistics;
mod sweep;
mod timers;
mod tracked;
mod tracking;
mod transaction;
mod unserved;
mod wait;
mod wheel;

pub use acquire::{AcquireRequest, Acquired};
pub use clock::Moment;
pub use deliveries::Answer;
pub use error::Error;
pub use external::Change;
pub use inspect::{Holder, LockInfo, QueueLength, WaiterInfo};
pub use statistics::{Progress, Statistics};

use crate::core::wait::WaitList;
use crate::core::{End, Millis, Policy};
use crate::store::{Channels, ClusterPublish, Store};
use clock::Clock;
use deliveries::Deliveries;
use memory::{LockId, Memory};
use returns::Returns;
use sweep::Sweep;
use timers::Timers;
use tracked::TrackedHolds;
use unserved::Unserved;
use wait::WaitRequest;

/// What an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who goes first.
    pub policy: Policy,
    /// Whether circles of waiters are looked for.
    pub deadlock_detection: bool,
    /// How many may wait, over the whole server; 0: any number.
    pub max_waiters: usize,
    /// How long a fence key outlives its last token, in ms; 0: for ever.
    pub fence_ttl: Millis,
    /// Where ends are announced.
    pub events: Channels,
    /// How a cluster publishes.
    pub cluster_publish: ClusterPublish,
}

impl Settings {
    /// What they are when nobody has set them.
    pub const DEFAULT: Settings = Settings {
        policy: Policy::Fifo,
        deadlock_detection: true,
        max_waiters: 100_000,
        fence_ttl: 7 * 24 * 3_600_000,
        events: Channels::Redisson,
        cluster_publish: ClusterPublish::Sharded,
    };
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}

/// The use cases and what they remember.
#[derive(Default)]
pub struct Engine {
    settings: Settings,
    /// What has happened so far.
    pub statistics: Statistics,
    /// The locks.
    memory: Memory,
    /// Locks that are forgotten, and whose memory is not given back yet.
    garbage: pass::Garbage,
    timers: Timers,
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
