//! What the clock showed when.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::Clock;

/// From a time on the clock goes like this.
#[derive(Clone, Copy, Debug)]
struct Setting {
    since: Instant,
    /// What it shows then, in µs.
    shows: i64,
    /// How many µs it gains in each second.
    drift: i64,
}

impl Setting {
    fn of(clock: &Clock) -> Setting {
        Setting { since: Instant::now(), shows: clock.micros(), drift: clock.drifts() }
    }

    fn at(&self, time: Instant) -> i64 {
        let gone = micros(time.saturating_duration_since(self.since));
        self.shows + gone + gone * self.drift / 1_000_000
    }
}

/// All of its settings, in order.
pub struct History(Mutex<Vec<Setting>>);

impl History {
    pub fn of(clock: &Clock) -> History {
        History(Mutex::new(vec![Setting::of(clock)]))
    }

    /// It has just been set.
    pub fn note(&self, clock: &Clock) {
        self.0.lock().expect("the history").push(Setting::of(clock));
    }

    /// The start of the first unbroken time between `from` and `to` in which the clock
    /// showed more than `us` for at least `for_long`.
    pub fn beyond(
        &self,
        us: i64,
        for_long: Duration,
        from: Instant,
        to: Instant,
    ) -> Option<Instant> {
        let settings = self.0.lock().expect("the history");
        let mut began: Option<Instant> = None;
        for (at, setting) in settings.iter().enumerate() {
            let until = settings.get(at + 1).map_or(to, |next| next.since.min(to));
            let since = setting.since.max(from);
            if since >= until {
                continue;
            }
            began = match (began, setting.at(since) > us, setting.at(until) > us) {
                (Some(began), true, _) => Some(began),
                (_, true, _) => Some(since),
                (_, false, true) => {
                    let missing = u64::try_from(us - setting.at(since)).unwrap_or(0);
                    let rate = u64::try_from(1_000_000 + setting.drift).unwrap_or(1_000_000);
                    Some(since + Duration::from_micros(missing * 1_000_000 / rate))
                }
                _ => None,
            };
            if began.is_some_and(|began| until.saturating_duration_since(began) >= for_long) {
                return began;
            }
        }
        None
    }

    /// By how many µs at most it was set forward in a while until `to`.
    pub fn forward(&self, from: Instant, to: Instant) -> i64 {
        let settings = self.0.lock().expect("the history");
        let pairs = settings.windows(2).filter(|pair| pair[1].since >= from && pair[1].since <= to);
        let steps = pairs.map(|pair| (pair[1].shows - pair[0].at(pair[1].since)).max(0));
        steps.sum::<i64>() + micros(to - from) / 10
    }

    /// The last settings, to be shown.
    pub fn tail(&self, now: Instant) -> String {
        let settings = self.0.lock().expect("the history");
        let line = |pair: &[Setting]| {
            let step = (pair[1].shows - pair[0].at(pair[1].since)) / 1_000;
            let ago = now.saturating_duration_since(pair[1].since);
            format!("{ago:?} ago: set by {step} ms, drift {}\n", pair[1].drift)
        };
        settings.windows(2).rev().take(20).map(line).collect()
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("a short time")
}
