//! What time it is, and how long to sleep.

use super::state::{Clocks, Moment};
use super::Engine;
use crate::core::Millis;
use crate::ffi::Ctx;

impl Engine {
    /// Takes note of what the clocks say. Whether one of them was set.
    pub fn read_clocks(&mut self, ctx: Ctx<'_>) -> bool {
        self.clock.sync(Clocks::now(ctx))
    }

    /// The present moment for what the server does now. Its own time stands still
    /// meanwhile, and is ahead of the wall clock when that was just set back.
    pub(super) fn now(&mut self, ctx: Ctx<'_>) -> Moment {
        self.read_clocks(ctx);
        self.clock.when(ctx.now().min(ctx.clock()))
    }

    /// The moment in so many ms, whatever becomes of the wall clock. It looks at the
    /// clocks: the wall clock may have been set since somebody did, and be set back.
    pub(super) fn within(&mut self, ctx: Ctx<'_>, ms: Millis) -> Moment {
        let now = Clocks::now(ctx);
        self.clock.sync(now);
        self.clock.when(now.wall).after(ms)
    }

    /// In how many ms it is past a moment, or the clocks are to be looked at; and
    /// which moment it is then.
    pub fn sleeps(&mut self, ctx: Ctx<'_>, until: Moment) -> (u64, Moment) {
        let now = Clocks::now(ctx);
        self.clock.sync(now);
        let ms = self.clock.until(until, now).min(LONGEST);
        (u64::try_from(ms).unwrap_or(0), self.clock.when(now.wall).after(ms))
    }
}

/// After so many ms the clocks are looked at, if nobody did before: no clock that
/// was set goes unnoticed for longer, though the server may not do its regular work.
const LONGEST: Millis = 1_000;
