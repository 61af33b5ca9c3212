//! Waiting for conditions, never for time; and how late things happen.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::on_this_machine;

/// How long anything may take before a test gives up on it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The pause between two looks at a condition.
pub(crate) const POLL: Duration = Duration::from_millis(2);

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

/// The clock that this machine's servers go by, unix time in ms.
pub fn local_clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
    i64::try_from(now.as_millis()).expect("a time in this age")
}

/// Asserts that something is on time, given by how many ms it was late in
/// several rounds.
///
/// What counts is the lower quartile, and the limit is that of [`on_this_machine`]: the
/// machine may be busy with other things, and that is not what is measured; a timer that is
/// too coarse is late in more than three of four rounds, however idle the machine.
#[track_caller]
pub fn assert_prompt(what: &str, limit: i64, late: &[i64]) {
    let mut sorted = late.to_vec();
    sorted.sort_unstable();
    assert!(sorted[0] >= 0, "{what}: too early: {late:?}");
    let limit = Duration::from_millis(u64::try_from(limit).expect("a limit in ms"));
    let allowed = on_this_machine(limit, late.len()).as_millis();
    let quartile = sorted[sorted.len() / 4];
    assert!(
        u128::try_from(quartile).is_ok_and(|quartile| quartile <= allowed),
        "{what}: by {late:?} ms, more than {allowed}, of which {limit:?} without load"
    );
}
