//! The time by which alarms ring.
//!
//! A lease ends by the server's wall clock, as all expiry does, and that clock can
//! be set. All else lasts as long as it was said to, whatever becomes of the wall
//! clock. So alarms go by a clock of their own, which is never behind either: it
//! goes forward with the wall clock, also when that is set forward, and goes on
//! like the steady clock while that is set back. Thus no alarm rings late. One may
//! ring early, and then there is nothing to do yet.

use crate::core::Millis;
use crate::ffi::Ctx;

/// A point in time by the clock of alarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) Millis);

impl Moment {
    /// Over, whatever the time.
    pub const PAST: Moment = Moment(0);

    /// So many ms later.
    pub fn after(self, ms: Millis) -> Moment {
        Moment(self.0.saturating_add(ms))
    }
}

/// A point in time by the steady clock, which nobody sets, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(Millis);

impl Steady {
    /// What the steady clock says.
    pub fn now(ctx: Ctx<'_>) -> Steady {
        Steady(ctx.steady_micros() / 1000)
    }

    /// So many ms later.
    pub fn after(self, ms: Millis) -> Steady {
        Steady(self.0.saturating_add(ms))
    }

    /// The ms from an earlier point to this one.
    pub fn since(self, earlier: Steady) -> Millis {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// What both clocks say, in ms.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The wall clock, as unix time.
    pub wall: Millis,
    /// The steady clock.
    pub steady: Steady,
}

impl Clocks {
    /// What they say now.
    pub fn now(ctx: Ctx<'_>) -> Clocks {
        Clocks { wall: ctx.clock(), steady: Steady::now(ctx) }
    }
}

/// By so many ms two looks at the clocks may differ although nobody has set any:
/// they are not read in the same instant.
const SLACK: Millis = 2;

/// The clock of alarms.
#[derive(Debug, Default)]
pub struct Clock {
    /// By how much it is ahead of the wall clock, in ms: by all that this was set
    /// back so far.
    ahead: Millis,
    /// What the clocks said when they last went alike.
    last_read: Option<Clocks>,
}

impl Clock {
    /// Takes note of what the clocks say. Whether they no longer go alike: one of
    /// them was set.
    pub fn sync(&mut self, now: Clocks) -> bool {
        let back = self.set_back(now);
        let was_set = back.abs() > SLACK;
        if was_set || self.last_read.is_none() {
            self.last_read = Some(now);
            self.ahead = self.ahead.saturating_add(back.max(0));
        }
        was_set
    }

    /// When the wall clock says this, if it is not set back before. What is to be
    /// some ms later than now counts from a look at the clocks.
    pub fn when(&self, wall: Millis) -> Moment {
        Moment(wall.saturating_add(self.ahead))
    }

    /// In how many ms it is past a moment; 0: it is now.
    pub fn until(&self, at: Moment, now: Clocks) -> Millis {
        let back = self.set_back(now);
        let now = self.when(now.wall).after(if back > SLACK { back } else { 0 });
        if now > at {
            0
        } else {
            at.0.saturating_sub(now.0).saturating_add(1)
        }
    }

    /// By how much the wall clock was set back since they went alike; negative:
    /// forward.
    fn set_back(&self, now: Clocks) -> Millis {
        self.last_read.map_or(0, |last| {
            let shown = now.wall.saturating_sub(last.wall);
            now.steady.since(last.steady).saturating_sub(shown)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL: Millis = 1_700_000_000_000;

    fn clocks(wall: Millis, steady: Millis) -> Clocks {
        Clocks { wall, steady: Steady(steady) }
    }

    #[test]
    fn an_alarm_is_on_time_while_the_clock_is_right() {
        let mut clock = Clock::default();
        clock.sync(clocks(WALL, 5_000));
        let at = clock.when(WALL).after(10);
        for (gone, until) in [(0, 11), (10, 1), (11, 0), (12, 0)] {
            assert_eq!(clock.until(at, clocks(WALL + gone, 5_000 + gone)), until);
        }
        assert_eq!(clock.until(Moment::PAST, clocks(WALL, 5_000)), 0);
    }

    #[test]
    fn it_does_not_run_away_when_the_clocks_are_read_one_after_the_other() {
        let mut clock = Clock::default();
        for ms in 0..10_000 {
            clock.sync(clocks(WALL + ms + ms % 3, 5_000 + ms));
        }
        assert_eq!(clock.when(WALL), Moment(WALL));
    }

    proptest! {
        /// However the wall clock is set, what waits for a time of it is not late, and
        /// what waits for a while waits no longer.
        #[test]
        fn no_alarm_is_late(
            steps in prop::collection::vec((0..2_000_i64, -4_000_000..4_000_000_i64, any::<bool>()), 1..50),
            wait in 0..10_000_i64,
            begins in 0..50_usize,
        ) {
            let mut clock = Clock::default();
            let (mut wall, mut steady) = (WALL, 5_000);
            let mut waits = None;
            clock.sync(clocks(wall, steady));
            for (at, (gone, step, looks)) in steps.into_iter().enumerate() {
                if at == begins {
                    // As `Engine::within` does.
                    clock.sync(clocks(wall, steady));
                    let end = wall + wait;
                    let lasts = clock.when(wall).after(wait);
                    waits = Some((lasts, clock.when(end), end, steady + wait));
                }
                steady += gone;
                // Set at any time, and noticed only when somebody looks.
                wall += gone + step;
                if looks {
                    clock.sync(clocks(wall, steady));
                }
                if let Some((lasts, ends, end, over)) = waits {
                    let now = clocks(wall, steady);
                    if steady > over + SLACK {
                        prop_assert_eq!(clock.until(lasts, now), 0);
                    }
                    if wall > end + SLACK {
                        prop_assert_eq!(clock.until(ends, now), 0);
                    }
                }
            }
        }
    }
}
