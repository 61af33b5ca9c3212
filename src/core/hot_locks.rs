//! The locks that were waited for longest, in bounded memory.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent
//! and Top-k Elements in Data Streams", 2005), with weights: a wait weighs as many ms as it took.
//! There is a fixed number of counters. A lock that has none takes over the counter of the lightest
//! lock, and inherits its weight as a possible error.
//!
//! # Bounds
//!
//! `C` is the number of counters, and `W` the sum of all waits, in ms, since the last
//! [`HotLocks::clear`].
//!
//! - A lock's [`total`](Figures::total) is never more than it was really waited for, and less by at
//!   most the [`error`](Hot::error), which is at most `W / C`.
//! - A lock that was waited for longer than `W / C` has a counter.
//! - All figures of a lock belong to the same waits: those since it got its counter. So `max` is at
//!   most `total`, and `total / waits` is the average wait.
//! - While no more than `C` locks were waited for, everything is exact.
//!
//! The paper reports the weight with the inherited error, which is an upper bound of the truth. That
//! would show a total of minutes for a lock that was waited for once for 5 ms. So `total` is without
//! it. Only the choice of the lightest lock needs the weight with it.
//!
//! A wait of 0 ms, or a deadlock that was found before the wait began, weighs nothing. It counts for
//! a lock that has a counter, or if there is a free one. It never takes over the counter of another
//! lock.

use super::Millis;
use hashbrown::HashMap;
use std::hash::Hash;

/// The number of counters.
const HOT_COUNTERS: usize = 1_000;

/// One event of a lock that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// For how many ms a client waited. None: it got an error before it began to wait.
    pub waited: Option<Millis>,
    /// What else to count.
    pub end: EventEnd,
}

/// What is counted of the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventEnd {
    Timeout,
    Deadlock,
    /// Another end, for example a grant.
    Other,
}

/// What is counted for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of waits.
    pub waits: u64,
    /// The sum of the waits, in ms.
    pub total: u64,
    /// The longest wait, in ms.
    pub max: u64,
    pub timeouts: u64,
    pub deadlocks: u64,
}

/// A lock that has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot<'a, L> {
    pub lock: &'a L,
    pub figures: Figures,
    /// By how many ms `total` is too small at most.
    pub error: u64,
}

/// The counter of a lock. Its weight is `figures.total + error`.
#[derive(Debug)]
struct Counter<L> {
    lock: L,
    figures: Figures,
    error: u64,
    /// Its place in the heap.
    place: usize,
}

/// The locks that were waited for longest, see the description of the module.
#[derive(Debug)]
pub struct HotLocks<L, const C: usize = HOT_COUNTERS> {
    counters: Vec<Counter<L>>,
    /// The index of each lock's counter.
    of_lock: HashMap<L, usize>,
    /// The weight and the index of each counter, as a binary heap: the two that follow the one at
    /// `n`, at `2 * n + 1` and `2 * n + 2`, are not lighter. A wait makes a counter heavier, so it
    /// sinks. A heavy one is at the bottom already, so the usual wait moves nothing.
    heap: Vec<(u64, usize)>,
}

impl<L, const C: usize> Default for HotLocks<L, C> {
    fn default() -> HotLocks<L, C> {
        HotLocks { counters: Vec::new(), of_lock: HashMap::default(), heap: Vec::new() }
    }
}

impl<L: Clone + Ord + Hash, const C: usize> HotLocks<L, C> {
    /// Counts an event of a lock. O(log C).
    pub fn add(&mut self, lock: &L, event: Event) {
        let ms = event.waited.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
        let known = self.of_lock.get(lock).copied();
        if let Some(index) = known.or_else(|| self.new_counter(lock, ms)) {
            let counter = &mut self.counters[index];
            counter.figures.add(event, ms);
            let place = counter.place;
            self.heap[place].0 = counter.weight();
            self.sink(place);
        }
    }

    /// Gives a counter to a lock that has none, for an event that weighs `ms`. None: it gets none.
    fn new_counter(&mut self, lock: &L, ms: u64) -> Option<usize> {
        let figures = Figures::default();
        let index = if self.counters.len() < C {
            let place = self.heap.len();
            self.counters.push(Counter { lock: lock.clone(), figures, error: 0, place });
            self.heap.push((0, place));
            self.rise(place);
            self.counters.len() - 1
        } else if ms > 0 {
            let (error, index) = *self.heap.first()?;
            let counter = &mut self.counters[index];
            self.of_lock.remove(&counter.lock);
            *counter = Counter { lock: lock.clone(), figures, error, place: 0 };
            index
        } else {
            return None;
        };
        self.of_lock.insert(lock.clone(), index);
        Some(index)
    }

    /// Restores the order of the heap after the counter at `place` became heavier.
    fn sink(&mut self, mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let below = below.filter(|below| *below < self.heap.len());
            match below.min_by_key(|below| self.heap[*below].0) {
                Some(below) if self.heap[below].0 < self.heap[place].0 => {
                    self.swap(place, below);
                    place = below;
                }
                _ => return,
            }
        }
    }

    /// Restores the order of the heap after a counter was added at `place`.
    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].0 < self.heap[(place - 1) / 2].0 {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    /// Whether the heap is one, and the counters know their places in it.
    #[cfg(test)]
    pub fn is_in_order(&self) -> bool {
        let heap = self.heap.iter().enumerate();
        heap.clone().all(|(place, entry)| place == 0 || self.heap[(place - 1) / 2].0 <= entry.0)
            && heap.clone().all(|(place, (weight, index))| {
                let counter = &self.counters[*index];
                counter.place == place && counter.weight() == *weight
            })
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.counters[self.heap[place].1].place = place;
        }
    }

    /// The locks that have counters, the longest total first. O(C log C).
    pub fn longest_first(&self) -> Vec<Hot<'_, L>> {
        let counters = self.counters.iter();
        let mut all: Vec<_> = counters
            .map(|Counter { lock, figures, error, .. }| Hot {
                lock,
                figures: *figures,
                error: *error,
            })
            .collect();
        all.sort_unstable_by(|one, other| {
            let rank = |hot: &Hot<'_, L>| (hot.figures.total, hot.figures.waits);
            rank(other).cmp(&rank(one)).then_with(|| one.lock.cmp(other.lock))
        });
        all
    }

    /// How many bytes the tables take, without what the names take elsewhere.
    #[cfg(test)]
    pub fn table_bytes(&self) -> usize {
        self.of_lock.allocation_size()
            + self.counters.capacity() * size_of::<Counter<L>>()
            + self.heap.capacity() * size_of::<(u64, usize)>()
    }

    /// Forgets everything, and gives the memory back.
    pub fn clear(&mut self) {
        *self = HotLocks::default();
    }
}

impl<L> Counter<L> {
    fn weight(&self) -> u64 {
        self.figures.total.saturating_add(self.error)
    }
}

impl Figures {
    fn add(&mut self, event: Event, ms: u64) {
        self.waits += u64::from(event.waited.is_some());
        self.total = self.total.saturating_add(ms);
        self.max = self.max.max(ms);
        match event.end {
            EventEnd::Timeout => self.timeouts += 1,
            EventEnd::Deadlock => self.deadlocks += 1,
            EventEnd::Other => {}
        }
    }
}
