//! A pass: what the engine does outside of commands in one turn of the server's
//! event loop. Clients wait meanwhile, so it ends after a millisecond, and the
//! rest goes on in the next turn.

use super::state::Moment;
use std::time::{Duration, Instant};

/// When a pass is over. The step that is under way then is done to its end.
const LONG_ENOUGH: Duration = Duration::from_millis(1);

/// A pass that has begun.
pub(super) struct Pass {
    began: Instant,
    /// When it began by the clock of alarms. For all of the pass it is this time.
    pub now: Moment,
}

impl Pass {
    pub fn begin(now: Moment) -> Pass {
        Pass { began: Instant::now(), now }
    }

    /// Whether the rest is for the next one.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() >= LONG_ENOUGH
    }

    /// How long it took, in µs.
    pub fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
