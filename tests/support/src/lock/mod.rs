//! Checks a lock by what Redis itself says of its keys.
//!
//! ```ignore
//! let mut lock = Lock::on(&server, "orders");
//! let a = lock.ok("RLOCK a 100000");
//! lock.is(held(&a).reads("a", [&a]));
//! lock.refuses("WLOCK b 50000", &a);
//! lock.gives("UNLOCK a", 1);
//! lock.is(free());
//! ```

mod checker;
mod lease;
mod state;

pub use checker::{whoever_meets_it, Lock};
pub use lease::Lease;
pub use state::{free, held};
