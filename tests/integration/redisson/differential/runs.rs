//! How many random runs there are, and how long each is.

use support::{fresh_seed, number_from_environment};

/// The seeds of a run: a few that are always the same, and a fresh one; only
/// that of RWLOCK_SEED where it is set.
pub fn seeds() -> Vec<u64> {
    match number_from_environment("RWLOCK_SEED") {
        Some(seed) => vec![seed],
        None => vec![1, 2, 3, fresh_seed()],
    }
}

/// How many steps each seed makes: RWLOCK_STEPS is their sum in a run of four.
pub fn steps_per_seed(default: u64) -> u64 {
    number_from_environment("RWLOCK_STEPS").unwrap_or(default).div_ceil(4)
}
