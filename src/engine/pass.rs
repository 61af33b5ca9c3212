//! A pass: the work that the engine does outside of commands in one turn of the server's event
//! loop. Clients wait meanwhile, so a pass ends after about 1 ms and the rest is done in the next
//! turn.

use super::state::Moment;
use std::time::{Duration, Instant};

/// The length of a pass. A step that has begun is finished even if it takes longer.
const PASS_LENGTH: Duration = Duration::from_millis(1);

/// A pass that has begun.
pub(super) struct Pass {
    began: Instant,
    /// The time of the timer clock when the pass began. The whole pass uses it.
    pub now: Moment,
}

impl Pass {
    pub fn begin(now: Moment) -> Pass {
        Pass { began: Instant::now(), now }
    }

    /// Whether the time is used up. The rest is for the next pass.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() >= PASS_LENGTH
    }

    /// The µs since the pass began.
    pub fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
