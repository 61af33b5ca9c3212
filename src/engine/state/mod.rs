//! What the engine remembers, in groups that keep their own invariants. None of it decides who
//! holds a lock: the keys do. It ends with the process.

mod clock;
mod deliveries;
mod garbage;
mod histogram;
mod memory;
mod readers;
mod returns;
mod settings;
mod slab;
mod statistics;
mod sweep;
mod timers;
mod tracked;
mod unserved;
mod waiter;
mod wheel;

pub use clock::{Clock, Clocks, Moment, Steady};
pub use deliveries::{Answer, Deliveries, InFlight};
pub use garbage::Garbage;
pub use memory::{Known, LockId, Memory, Place};
pub use readers::Readers;
pub use returns::Returns;
pub use settings::Settings;
pub use statistics::{Progress, Statistics};
pub use sweep::{Sweep, Sweeping};
pub use timers::{NextTimer, Timer, Timers};
pub use tracked::{Delivery, Grant, Hold, Ids, Session, Tracked, TrackedHolds, TrackedId};
pub use unserved::Unserved;
pub use waiter::{WaitRequest, Waiter};
