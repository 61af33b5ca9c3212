//! Reads the clocks, and says how long to sleep.

use super::state::{Clocks, Moment};
use super::Engine;
use crate::core::Millis;
use crate::ffi::Ctx;

impl Engine {
    /// Reads the clocks. True if one of them was set since the last call.
    pub fn read_clocks(&mut self, ctx: Ctx<'_>) -> bool {
        self.clock.sync(Clocks::now(ctx))
    }

    /// The current moment for the server's present work. The server's time stands still during a
    /// command and may be ahead of a wall clock that was just set back, so the earlier of the two
    /// counts.
    pub(super) fn now(&mut self, ctx: Ctx<'_>) -> Moment {
        self.read_clocks(ctx);
        self.clock.moment_of(ctx.now().min(ctx.clock()))
    }

    /// The moment in `ms` ms. Reads the clocks first: the wall clock may have been set since the
    /// last reading, and be set back later.
    pub(super) fn within(&mut self, ctx: Ctx<'_>, ms: Millis) -> Moment {
        let now = Clocks::now(ctx);
        self.clock.sync(now);
        self.clock.moment_of(now.wall).after(ms)
    }

    /// How many ms to sleep until `until` is over, 1,000 at most: then the clocks are read again.
    /// The second value is the moment at the end of that sleep.
    pub fn sleeps(&mut self, ctx: Ctx<'_>, until: Moment) -> (u64, Moment) {
        let now = Clocks::now(ctx);
        self.clock.sync(now);
        let ms = self.clock.ms_until(until, now).min(LONGEST_SLEEP);
        (u64::try_from(ms).unwrap_or(0), self.clock.moment_of(now.wall).after(ms))
    }
}

/// The longest sleep in ms. After it the clocks are read, so a clock that was set is noticed even
/// if the server does not run its regular tasks.
const LONGEST_SLEEP: Millis = 1_000;
