//! What the engine remembers, in groups that keep their own invariants. None of it decides who
//! holds a lock: the keys do. It ends with the process.

mod clock;
mod deliveries;
mod freed;
mod garbage;
mod histogram;
mod hot_lock;
mod log;
mod memory;
mod names;
mod readers;
mod returns;
mod settings;
mod slab;
mod statistics;
mod sweep;
mod tenure;
mod timers;
mod tracked;
mod unserved;
mod wait_end;
mod waiter;
mod walk;
mod wheel;

pub use clock::{Clock, Clocks, Moment, Steady};
pub use deliveries::{Answer, Deliveries, Grants, InFlight};
pub use freed::{LongHold, Released};
pub use garbage::Garbage;
pub use hot_lock::HotLock;
pub use log::{Blocker, Connection, Cut, Event, Lines, Log, LogEntry, Record, MOST_BLOCKERS};
pub use memory::{Known, LockId, Memory, Place};
pub use readers::Readers;
pub use returns::Returns;
pub use settings::Settings;
pub use statistics::{Progress, Statistics};
pub use sweep::{Sweep, Sweeping};
pub use tenure::{Held, Tenure};
pub use timers::{NextTimer, Timer, Timers};
pub use tracked::{Delivery, Grant, Hold, Ids, Session, Tracked, TrackedHolds, TrackedId};
pub use unserved::Unserved;
pub use wait_end::WaitEnd;
pub use waiter::{WaitRequest, Waiter};
