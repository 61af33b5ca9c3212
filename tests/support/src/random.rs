//! Random numbers that a seed repeats.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// [`Random::below`] for an index.
    pub fn below_len(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).expect("it is below a usize")
    }

    /// [`Random::below`] for what takes 32 bits.
    pub fn below_u32(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(u64::from(limit))).expect("it is below a u32")
    }

    /// A number between these two, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below_len(from.len())]
    }

    /// One of them, by weight.
    pub fn weigh<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut left = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, one) in from {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return one,
            }
        }
        unreachable!("less than the sum of the weights")
    }
}

/// A seed that no run had before.
pub fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The number that a variable of the environment names, if it is set.
pub fn number_from_environment(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable} is {text:?}: {error}")))
}
