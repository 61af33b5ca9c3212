//! The end of a wait.

use super::state::{HotLock, Steady, WaitEnd, Waiter};
use super::Engine;
use crate::core::{Event, EventEnd};
use crate::ffi::Ctx;

impl Engine {
    /// Counts and logs a wait that is over. Each wait comes here once, however it ended, when it is
    /// known what became of the answer. So does a request that was denied because of a deadlock.
    /// Only waits that a panic has ended do not come here.
    pub(super) fn wait_is_over(&mut self, ctx: Ctx<'_>, waiter: &Waiter, end: &WaitEnd) {
        let waited = Steady::now(ctx).since(waiter.request.since);
        self.log_wait(ctx, waiter, end, waited);
        self.statistics.wait_is_over(end, waited);
        let event = Event {
            waited: match end {
                WaitEnd::Denied(_) => None,
                _ => Some(waited),
            },
            end: match end {
                WaitEnd::TimedOut | WaitEnd::Unblocked => EventEnd::Timeout,
                end if end.is_deadlock() => EventEnd::Deadlock,
                _ => EventEnd::Other,
            },
        };
        for place in &waiter.places {
            self.hot_locks.add(&HotLock::from(&place.lock), event);
        }
    }
}
