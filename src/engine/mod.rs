//! The use cases: look at the lock, ask the rules, carry out. The only path on
//! which a lock changes.
//!
//! What lives in memory here is what dies with the process anyway: who waits,
//! which holds are bound to a connection, and when to look at a lock again.

mod acquire;
mod alarms;
mod bindings;
mod choice;
mod clock;
mod deadlock;
mod deliveries;
mod due;
mod error;
mod external;
mod fence;
mod figures;
mod inspect;
mod intervals;
mod last;
mod memory;
mod pass;
mod readers;
mod release;
mod remember;
mod serve;
mod sessions;
mod settings;
mod slab;
mod slots;
mod sweep;
mod tracked;
mod transaction;
mod unserved;
mod wait;
mod waits;
mod wheel;

pub use acquire::{Acquired, Ask};
pub use clock::Moment;
pub use deliveries::Answer;
pub use error::Error;
pub use external::Change;
pub use figures::{Figures, Progress};
pub use inspect::{Holder, Picture, QueueLength, WaiterPicture};
pub use wait::Left;

use crate::core::wait::WaitList;
use crate::core::{End, Millis, Policy, WaiterId};
use crate::store::{Channels, ClusterPublish, Store};
use alarms::Alarms;
use clock::Clock;
use deliveries::InFlight;
use hashbrown::HashMap;
use memory::{LockId, Memory};
use std::collections::BTreeSet;
use tracked::{AllTracked, TrackedId};
use wait::Asked;

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
    pub figures: Figures,
    memory: Memory,
    alarms: Alarms,
    /// What is forgotten, and not dropped yet.
    remains: pass::Remains,
    /// Whether the last pass left something to be done that was due.
    unfinished: bool,
    clock: Clock,
    /// Who waits.
    waits: WaitList<LockId, Asked>,
    /// The holds that are bound to a connection, or whose answers are under way.
    tracked: AllTracked,
    /// The last of them that was there before the work that is being done, or was done
    /// last.
    tracked_before: TrackedId,
    /// What waiters are to be told.
    answers: Vec<(WaiterId, Answer)>,
    /// Those whose answers are on their way.
    in_flight: HashMap<WaiterId, InFlight>,
    /// Whether holds are being given back whose connections are gone. Nobody is served
    /// meanwhile: by one of them nobody is to be granted anything when others go.
    gives_back: bool,
    /// The locks whose queues wait for the end of that.
    freed: Vec<LockId>,
    /// Connections that are gone, and whose holds are to be given back.
    gone_clients: BTreeSet<u64>,
    /// Holds to be given back: their client never learnt of them, or it could not be
    /// done when it was tried.
    gone: Vec<TrackedId>,
    /// Those of them that are not tried before the next time.
    not_yet: Vec<TrackedId>,
    /// When that is.
    not_yet_due: Moment,
    /// When they can be given back, at the earliest.
    not_before: Moment,
    /// The search for locks that nobody has touched yet, while it goes on.
    sweeping: Option<sweep::Sweeping>,
    /// The locks that could not be looked at when they were met.
    unserved: unserved::Unserved,
    /// Whether it has ended since it was last begun.
    swept: bool,
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
