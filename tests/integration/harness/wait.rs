//! Waiting for conditions, never for time.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The pause between two looks at a condition.
pub(super) const POLL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds; panics with `what` after [`DEADLINE`].
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_until_within(what, DEADLINE, condition);
}

/// [`wait_until`] with another limit, for a test of a bound.
///
/// The condition is looked at once more after the limit, so that a machine
/// that stalled the test itself does not make it fail.
#[track_caller]
pub fn wait_until_within(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        let last_look = started.elapsed() >= limit;
        if condition() {
            return;
        }
        assert!(!last_look, "waited {limit:?} in vain: {what}");
        thread::sleep(POLL);
    }
}
