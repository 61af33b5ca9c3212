//! A histogram of wait times in ms, of fixed size.
//!
//! Times below 16 ms have a part each. Every doubling beyond that is cut into 16 equal parts. A
//! percentile is the middle of a part, so it is wrong by at most 3.2 %. The longest time is exact.

use crate::core::Millis;

/// The number of parts of a doubling.
const PARTS: usize = 16;

/// The number of doublings. The last ends at 2^36 ms, some two years.
const DOUBLINGS: usize = 32;

/// The number of times in each part.
pub struct Histogram {
    counts: [u64; PARTS * (1 + DOUBLINGS)],
    total: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; PARTS * (1 + DOUBLINGS)], total: 0, longest: 0 }
    }
}

impl Histogram {
    /// Adds a time in ms. A negative time, from a clock that was set back, counts as 0.
    pub fn add(&mut self, ms: Millis) {
        let ms = u64::try_from(ms).unwrap_or(0);
        let last = self.counts.len() - 1;
        self.counts[part(ms).min(last)] += 1;
        self.total += 1;
        self.longest = self.longest.max(ms);
    }

    /// The time in ms that `percent` % of all times did not exceed. 0 without times.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = self.total.saturating_mul(percent).div_ceil(100).max(1);
        let mut counted = 0;
        for (part, count) in self.counts.iter().enumerate() {
            counted += count;
            if counted >= rank {
                return middle(part).min(self.longest);
            }
        }
        0
    }

    /// The longest time in ms. 0 without times.
    pub fn longest(&self) -> u64 {
        self.longest
    }
}

/// The part of a time in ms.
fn part(ms: u64) -> usize {
    let parts = PARTS as u64;
    if ms < parts {
        return ms as usize;
    }
    let doubling = ms.ilog2() - PARTS.ilog2();
    (doubling as usize + 1) * PARTS + ((ms >> doubling) - parts) as usize
}

/// The middle of a part, in ms.
fn middle(part: usize) -> u64 {
    let Some(doubling) = (part / PARTS).checked_sub(1) else {
        return part as u64;
    };
    let first = ((PARTS + part % PARTS) as u64) << doubling;
    first + ((1 << doubling) - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut waits = Histogram::default();
        times.into_iter().for_each(|ms| waits.add(ms as Millis));
        waits
    }

    #[test]
    fn no_time_is_told_wrong_by_more_than_it_says() {
        let mut all: Vec<u64> = (0..100_000).collect();
        for doubling in 17..36 {
            for step in 0..200 {
                let first = 1_u64 << doubling;
                all.extend([first + step, first + first / 200 * step, 2 * first - 1 - step]);
            }
        }
        for ms in all {
            let given = middle(part(ms));
            let off = given.abs_diff(ms) as f64;
            assert!(off <= ms as f64 * 0.032, "{ms} is given as {given}");
        }
    }

    #[test]
    fn parts_follow_each_other_without_gaps() {
        let mut last = 0;
        for ms in 0..1_000_000 {
            let now = part(ms);
            assert!(now == last || now == last + 1, "{ms}: {last}, {now}");
            last = now;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        for times in [(1..=100).collect::<Vec<u64>>(), vec![7], vec![0, 0, 0, 5_000]] {
            let waits = waits(times.iter().copied());
            for percent in 1..=100 {
                let rank = (times.len() * percent).div_ceil(100).max(1);
                let exact = times[rank - 1];
                let given = waits.percentile(percent as u64);
                let off = given.abs_diff(exact) as f64;
                assert!(off <= exact as f64 * 0.032, "{percent}: {given}, not {exact}");
            }
            assert_eq!(waits.longest(), times[times.len() - 1]);
        }
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        let waits = Histogram::default();
        assert_eq!((waits.percentile(50), waits.percentile(99), waits.longest()), (0, 0, 0));
    }

    #[test]
    fn no_time_is_too_long_or_too_short() {
        let mut waits = Histogram::default();
        waits.add(Millis::MAX);
        assert_eq!(waits.longest(), Millis::MAX as u64);
        assert!(waits.percentile(50) >= 31 << 31);
        waits.add(Millis::MIN);
        waits.add(-1);
        assert_eq!(waits.percentile(50), 0);
    }
}
