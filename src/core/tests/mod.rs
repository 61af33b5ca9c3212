//! Tests of the rules: each rule by itself, and all rules against a simple model.

mod announcements;
mod hot_locks;
mod model;
mod properties;
mod reservations;
mod room;
mod waiting;
mod walk;
mod world;

/// The size of a long test. `RWLOCK_TESTS_SHORTER=20` makes it 20 times smaller, for a run that
/// repeats the tests often (`make mutants`).
fn sized(size: usize) -> usize {
    let shorter = std::env::var("RWLOCK_TESTS_SHORTER").ok();
    size / shorter.and_then(|text| text.parse().ok()).unwrap_or(1)
}
