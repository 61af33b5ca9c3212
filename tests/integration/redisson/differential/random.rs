//! Random numbers that a seed brings back, and how many of them to use.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};

/// SplitMix64: small, and the same everywhere.
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
    pub fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit)).expect("smaller than a u32")
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u32::try_from(from.len()).expect("a short list");
        from[self.below(count) as usize]
    }

    /// One of them, by weight.
    pub fn weigh<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
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

/// The seeds of a run: a few that are always the same, and a fresh one; only
/// that of RWLOCK_SEED where it is set.
pub fn seeds() -> Vec<u64> {
    match number("RWLOCK_SEED") {
        Some(seed) => vec![seed],
        None => vec![1, 2, 3, RandomState::new().build_hasher().finish()],
    }
}

/// How many steps each seed makes: RWLOCK_STEPS is their sum in a run of four.
pub fn steps_per_seed(default: u64) -> u64 {
    number("RWLOCK_STEPS").unwrap_or(default).div_ceil(4)
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable} is {text:?}: {error}")))
}
