//! The counters of HOTLOCKS against exact counts.

use super::sized;
use crate::core::{Event, EventEnd, Figures, HotLocks};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Counts every lock.
#[derive(Default)]
struct Exact(BTreeMap<u32, Figures>);

impl Exact {
    fn add(&mut self, lock: u32, event: Event) {
        let ms = u64::try_from(event.waited.unwrap_or(0)).unwrap_or(0);
        let figures = self.0.entry(lock).or_default();
        figures.waits += u64::from(event.waited.is_some());
        figures.total += ms;
        figures.max = figures.max.max(ms);
        figures.timeouts += u64::from(event.end == EventEnd::Timeout);
        figures.deadlocks += u64::from(event.end == EventEnd::Deadlock);
    }

    fn of(&self, lock: u32) -> Figures {
        self.0.get(&lock).copied().unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.0.values().map(|figures| figures.total).sum()
    }

    /// The locks with the longest totals, longest first.
    fn first(&self, count: usize) -> Vec<u32> {
        let mut locks: Vec<_> = self.0.keys().copied().collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(self.of(*lock).total));
        locks.truncate(count);
        locks
    }
}

/// Checks all that the module's description promises. Returns the locks that have counters.
fn check<const C: usize>(counted: &HotLocks<u32, C>, exact: &Exact) -> Vec<u32> {
    assert!(counted.is_in_order(), "the lightest counter is not found: {counted:?}");
    let hot = counted.longest_first();
    let bound = exact.total() / C as u64;
    assert!(hot.len() <= C);
    assert!(hot.is_sorted_by_key(|hot| std::cmp::Reverse(hot.figures.total)));
    for hot in &hot {
        let (seen, truth) = (hot.figures, exact.of(*hot.lock));
        assert!(seen.total <= truth.total && truth.total <= seen.total + hot.error, "{hot:?}");
        assert!(hot.error <= bound, "{hot:?}, and the bound is {bound}");
        assert!(seen.max <= seen.total && seen.max <= truth.max, "{hot:?}");
        assert!(seen.waits <= truth.waits && seen.timeouts <= truth.timeouts, "{hot:?}");
        assert!(seen.deadlocks <= truth.deadlocks, "{hot:?}");
        if hot.error == 0 {
            assert_eq!(seen.total, truth.total, "{hot:?}");
        }
    }
    let locks: Vec<u32> = hot.iter().map(|hot| *hot.lock).collect();
    for (lock, truth) in &exact.0 {
        assert!(truth.total <= bound || locks.contains(lock), "{lock}: {truth:?}, {bound}");
    }
    locks
}

fn event() -> impl Strategy<Value = Event> {
    let waited = prop_oneof![1 => Just(None), 2 => Just(Some(0)), 5 => (-1..50_i64).prop_map(Some)];
    let end = prop_oneof![
        3 => Just(EventEnd::Other),
        1 => Just(EventEnd::Timeout),
        1 => Just(EventEnd::Deadlock)
    ];
    (waited, end).prop_map(|(waited, end)| Event { waited, end })
}

proptest! {
    #[test]
    fn the_figures_are_within_the_bound(
        events in prop::collection::vec((0..12_u32, event()), 0..200),
    ) {
        let mut counted: HotLocks<u32, 5> = HotLocks::default();
        let mut exact = Exact::default();
        for (lock, event) in events {
            counted.add(&lock, event);
            exact.add(lock, event);
            check(&counted, &exact);
        }
        counted.clear();
        prop_assert_eq!(counted.longest_first().len(), 0);
    }

    /// With enough counters for a heap of several levels, whose order matters.
    #[test]
    fn the_lightest_counter_is_taken_over(
        events in prop::collection::vec((0..60_u32, event()), 0..300),
    ) {
        let mut counted: HotLocks<u32, 23> = HotLocks::default();
        let mut exact = Exact::default();
        for (lock, event) in events {
            counted.add(&lock, event);
            exact.add(lock, event);
            check(&counted, &exact);
        }
    }

    #[test]
    fn everything_is_exact_while_there_are_counters_for_all(
        events in prop::collection::vec((0..5_u32, event()), 0..200),
    ) {
        let mut counted: HotLocks<u32, 5> = HotLocks::default();
        let mut exact = Exact::default();
        for (lock, event) in events {
            counted.add(&lock, event);
            exact.add(lock, event);
        }
        let seen: BTreeMap<u32, Figures> =
            counted.longest_first().iter().map(|hot| (*hot.lock, hot.figures)).collect();
        prop_assert_eq!(seen, exact.0);
    }

    /// However many waits of 0 ms there are, no lock loses its counter.
    #[test]
    fn what_weighs_nothing_takes_no_counter(
        waits in prop::collection::vec((0..3_u32, 1..50_i64), 3..50),
        others in prop::collection::vec(3..1_000_u32, 0..100),
    ) {
        let mut counted: HotLocks<u32, 3> = HotLocks::default();
        let other = EventEnd::Other;
        for (lock, ms) in waits {
            counted.add(&lock, Event { waited: Some(ms), end: other });
        }
        let before: Vec<_> = counted.longest_first().iter().map(|hot| *hot.lock).collect();
        prop_assume!(before.len() == 3);
        for lock in others {
            counted.add(&lock, Event { waited: Some(0), end: other });
            counted.add(&lock, Event { waited: None, end: EventEnd::Deadlock });
        }
        let after: Vec<_> = counted.longest_first().iter().map(|hot| *hot.lock).collect();
        prop_assert_eq!(after, before);
    }
}

/// Random numbers that are the same in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn the_hottest_of_100_000_locks_come_first() {
    const LOCKS: usize = 100_000;
    // Zipf: the lock of rank r is waited for in proportion to 1/r.
    let mut sums: Vec<f64> = Vec::with_capacity(LOCKS);
    for rank in 1..=LOCKS {
        sums.push(sums.last().unwrap_or(&0.0) + 1.0 / rank as f64);
    }
    let all = sums[LOCKS - 1];
    for seed in 1..=sized(3) as u64 {
        let mut random = Random(seed);
        let mut counted: HotLocks<u32> = HotLocks::default();
        let mut exact = Exact::default();
        let mut worst = 0;
        for _ in 0..1_000_000 {
            let part = random.part() * all;
            let lock = sums.partition_point(|sum| *sum < part).min(LOCKS - 1) as u32;
            // Most waits are short, and the average is 20 ms.
            let ms = (-20.0 * (1.0 - random.part()).ln()) as i64;
            let event = Event { waited: Some(ms), end: EventEnd::Other };
            counted.add(&lock, event);
            exact.add(lock, event);
        }
        let locks = check(&counted, &exact);
        for lock in exact.first(20) {
            assert!(locks[..25].contains(&lock), "{lock} is not among {:?}", &locks[..25]);
        }
        for hot in &counted.longest_first()[..20] {
            let truth = exact.of(*hot.lock).total;
            worst = worst.max((truth - hot.figures.total) * 10_000 / truth);
        }
        println!("seed {seed}: of the first 20 the worst total is {worst} / 10000 too small");
        assert!(worst <= 100, "{worst} / 10000");
    }
}

/// Locks that nobody comes back to push each other out. They push out no hot lock.
#[test]
fn a_stream_of_new_locks_does_not_push_a_hot_one_out() {
    let mut counted: HotLocks<u32> = HotLocks::default();
    let mut exact = Exact::default();
    for step in 0..sized(300_000) as u32 {
        let lock = if step % 100 == 0 { 0 } else { step };
        let event = Event { waited: Some(5), end: EventEnd::Other };
        counted.add(&lock, event);
        exact.add(lock, event);
    }
    check(&counted, &exact);
    let first = counted.longest_first()[0];
    assert_eq!((*first.lock, first.figures), (0, exact.of(0)));
}
