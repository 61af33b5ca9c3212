//! The timer clock.
//!
//! A lease ends by the server's wall clock, as every expiry does, and that clock can be set. All
//! other times are durations, and must not change with the wall clock. So timers go by a clock of
//! their own. It moves forward with the wall clock, also when that is set forward. When the wall
//! clock is set back, the timer clock follows the steady clock instead. So it is never behind
//! either clock, and no timer fires late. A timer can fire early; then there is nothing to do yet.

use crate::core::Millis;
use crate::ffi::Ctx;

/// A point in time of the timer clock, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) Millis);

impl Moment {
    /// A time that is always over.
    pub const PAST: Moment = Moment(0);

    /// The moment `ms` ms later.
    pub fn after(self, ms: Millis) -> Moment {
        Moment(self.0.saturating_add(ms))
    }
}

/// A point in time of the steady clock, in ms. Nobody can set that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(pub(super) Millis);

impl Steady {
    /// The current time of the steady clock.
    pub fn now(ctx: Ctx<'_>) -> Steady {
        Steady(ctx.steady_micros() / 1000)
    }

    /// The time `ms` ms later.
    pub fn after(self, ms: Millis) -> Steady {
        Steady(self.0.saturating_add(ms))
    }

    /// The ms from `earlier` to this time, 0 or more.
    pub fn since(self, earlier: Steady) -> Millis {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// The times of both clocks, in ms, read together.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The wall clock, as unix time.
    pub wall: Millis,
    /// The steady clock.
    pub steady: Steady,
}

impl Clocks {
    /// Reads both clocks.
    pub fn now(ctx: Ctx<'_>) -> Clocks {
        Clocks { wall: ctx.clock(), steady: Steady::now(ctx) }
    }
}

/// The largest difference in ms between the clocks that does not mean that one was set. They are
/// not read in the same instant.
const SLACK: Millis = 2;

/// The timer clock, see the module's description.
#[derive(Debug, Default)]
pub struct Clock {
    /// How many ms it is ahead of the wall clock: the sum of all times by which that was set back.
    ahead: Millis,
    /// The clocks at the first reading, or when a set clock was last noticed.
    reference: Option<Clocks>,
    /// The steady clock at the last reading.
    last_read: Millis,
    /// How many ms the steady clock is ahead of the wall clock, by `reference`.
    steady_ahead: Millis,
}

/// For how long after a reading the steady time follows from the wall clock, in ms. The clocks are
/// read about ten times a second. If the wall clock is set in between, [`Clock::steady_of`] is wrong
/// by at most this time, and only until the next reading.
const LONGEST_UNREAD: Millis = 2_000;

impl Clock {
    /// Compares the clocks with `reference`. If a clock was set since, adjusts `ahead`, replaces
    /// `reference` and returns true.
    pub fn sync(&mut self, now: Clocks) -> bool {
        let back = self.ms_set_back(now);
        let was_set = back.abs() > SLACK;
        self.last_read = now.steady.0;
        if was_set || self.reference.is_none() {
            self.reference = Some(now);
            self.steady_ahead = now.steady.0.wrapping_sub(now.wall);
            self.ahead = self.ahead.saturating_add(back.max(0));
        }
        was_set
    }

    /// The moment at which the wall clock shows `wall`, if it is not set back before. For a moment
    /// some ms from now, call `sync` first.
    pub fn moment_of(&self, wall: Millis) -> Moment {
        Moment(wall.saturating_add(self.ahead))
    }

    /// The time of the steady clock when the wall clock shows `wall`, which is about now. It saves
    /// reading the steady clock. None: that has to be read, because the last reading is too old or
    /// the wall clock was set.
    pub fn steady_of(&self, wall: Millis) -> Option<Steady> {
        let now = wall.wrapping_add(self.steady_ahead);
        (now.abs_diff(self.last_read) <= LONGEST_UNREAD as u64).then_some(Steady(now))
    }

    /// The ms until `at` is over. 0: it is over now.
    pub fn ms_until(&self, at: Moment, now: Clocks) -> Millis {
        let back = self.ms_set_back(now);
        let now = self.moment_of(now.wall).after(if back > SLACK { back } else { 0 });
        if now > at {
            0
        } else {
            at.0.saturating_sub(now.0).saturating_add(1)
        }
    }

    /// By how many ms the wall clock was set back since `reference`. Negative: it was set forward.
    fn ms_set_back(&self, now: Clocks) -> Millis {
        self.reference.map_or(0, |reference| {
            let by_wall = now.wall.saturating_sub(reference.wall);
            now.steady.since(reference.steady).saturating_sub(by_wall)
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
        let at = clock.moment_of(WALL).after(10);
        for (elapsed, until) in [(0, 11), (10, 1), (11, 0), (12, 0)] {
            assert_eq!(clock.ms_until(at, clocks(WALL + elapsed, 5_000 + elapsed)), until);
        }
        assert_eq!(clock.ms_until(Moment::PAST, clocks(WALL, 5_000)), 0);
    }

    #[test]
    fn it_does_not_run_away_when_the_clocks_are_read_one_after_the_other() {
        let mut clock = Clock::default();
        for ms in 0..10_000 {
            clock.sync(clocks(WALL + ms + ms % 3, 5_000 + ms));
        }
        assert_eq!(clock.moment_of(WALL), Moment(WALL));
    }

    #[test]
    fn a_set_wall_clock_moves_the_steady_time_by_no_more_than_it_says() {
        let mut clock = Clock::default();
        assert_eq!(clock.steady_of(WALL), None, "no clock was read yet");
        clock.sync(clocks(WALL, 5_000));
        for elapsed in [0, 1, 2_000] {
            assert_eq!(clock.steady_of(WALL + elapsed), Some(Steady(5_000 + elapsed)));
        }
        for step in [-3_600_000, -2_001, 2_001, 3_600_000] {
            assert_eq!(clock.steady_of(WALL + step), None, "{step}");
        }
        assert_eq!(clock.steady_of(WALL - 1_500), Some(Steady(3_500)), "not noticed yet");
        // A reading notices it.
        clock.sync(clocks(WALL + 3_600_000, 5_100));
        assert_eq!(clock.steady_of(WALL + 3_600_007), Some(Steady(5_107)));
        clock.sync(clocks(WALL, 5_200));
        assert_eq!(clock.steady_of(WALL + 7), Some(Steady(5_207)));
    }

    proptest! {
        /// However the wall clock is set, a timer for a time of the wall clock is not late, and a
        /// timer for a duration does not take longer.
        #[test]
        fn no_alarm_is_late(
            steps in prop::collection::vec((0..2_000_i64, -4_000_000..4_000_000_i64, any::<bool>()), 1..50),
            wait in 0..10_000_i64,
            begins in 0..50_usize,
        ) {
            let mut clock = Clock::default();
            let (mut wall, mut steady) = (WALL, 5_000);
            let mut timers = None;
            clock.sync(clocks(wall, steady));
            for (at, (elapsed, step, reads_clocks)) in steps.into_iter().enumerate() {
                if at == begins {
                    // As `Engine::within` does.
                    clock.sync(clocks(wall, steady));
                    let end = wall + wait;
                    let lasts = clock.moment_of(wall).after(wait);
                    timers = Some((lasts, clock.moment_of(end), end, steady + wait));
                }
                steady += elapsed;
                // The clock is set at any time, and only the next reading notices it.
                wall += elapsed + step;
                if reads_clocks {
                    clock.sync(clocks(wall, steady));
                }
                if let Some((lasts, ends, end, over)) = timers {
                    let now = clocks(wall, steady);
                    if steady > over + SLACK {
                        prop_assert_eq!(clock.ms_until(lasts, now), 0);
                    }
                    if wall > end + SLACK {
                        prop_assert_eq!(clock.ms_until(ends, now), 0);
                    }
                }
            }
        }
    }
}
