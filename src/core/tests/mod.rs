//! Tests of the rules: each rule by itself, and all rules against a simple model. The fuzzer uses
//! those of waiting.

#[cfg(test)]
mod announcements;
#[cfg(test)]
mod hot_locks;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod reservations;
#[cfg(test)]
mod room;
pub mod waiting;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod world;

/// The size of a long test. `RWLOCK_TESTS_SHORTER=20` makes it 20 times smaller, for a run that
/// repeats the tests often (`make mutants`).
#[cfg(test)]
fn sized(size: usize) -> usize {
    let shorter = std::env::var("RWLOCK_TESTS_SHORTER").ok();
    let shorter = shorter.and_then(|text| text.parse().ok());
    // Miri is hundreds of times slower.
    size / shorter.unwrap_or(if cfg!(miri) { 500 } else { 1 })
}

/// The number of cases of a property, of this size and at least `least`. Miri tries four or more.
#[cfg(test)]
fn cases(size: usize, least: usize) -> u32 {
    sized(size).max(if cfg!(miri) { 4 } else { least }) as u32
}
