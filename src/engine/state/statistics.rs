//! The statistics for INFO: what happened since the module was loaded. `docs/monitoring.md`
//! explains each of them.
//!
//! A request is counted by its answer. A request that waited is counted when the server has taken
//! the answer for its connection. So a grant whose answer was lost is not counted, and clients that
//! count their answers come to the same numbers.

use super::histogram::Histogram;
use super::wait_end::WaitEnd;
use crate::core::Millis;
use crate::engine::error::Error;
use crate::engine::request::Acquired;

/// What happened since the module was loaded.
#[derive(Default)]
pub struct Statistics {
    /// Requests that were granted, at once or after waiting.
    pub acquired: u64,
    /// Requests that were refused at once.
    pub refused: u64,
    /// Requests that began to wait.
    pub waited: u64,
    /// Requests that were granted after waiting.
    pub granted_after_waiting: u64,
    /// The wait times of the requests that were granted after waiting.
    pub wait_times: Histogram,
    /// Waiters that timed out, or were unblocked by CLIENT UNBLOCK.
    pub timeouts: u64,
    /// Holds that were released or forced away by a command.
    pub released: u64,
    /// Holds that lapsed.
    pub lapsed: u64,
    /// Requests and waiters that failed because of a circle, or because of another owner's upgrade.
    pub deadlocks: u64,
    /// Holds that were returned because their connection closed.
    pub disconnect_releases: u64,
    /// For how long locks were held that became free since.
    pub hold_times: Histogram,
    /// The duration of the longest pass, in µs.
    pub longest_pass: u64,
}

impl Statistics {
    /// Counts a request by its first answer.
    pub fn answered(&mut self, answer: &Result<Acquired, Error>) {
        match answer {
            Ok(Acquired::Held { holds, .. }) => self.acquired += holds,
            Ok(Acquired::Refused(_)) => self.refused += 1,
            Err(error) if error.is_deadlock() => self.deadlocks += 1,
            Ok(Acquired::Waiting) => self.waited += 1,
            Err(_) => {}
        }
    }

    /// Counts a wait that is over. `waited` is in ms.
    pub fn wait_is_over(&mut self, end: &WaitEnd, waited: Millis) {
        match end {
            WaitEnd::Granted(holds) => {
                self.acquired += holds;
                self.granted_after_waiting += 1;
                self.wait_times.add(waited);
            }
            WaitEnd::TimedOut | WaitEnd::Unblocked => self.timeouts += 1,
            WaitEnd::Failed(error) if error.is_deadlock() => self.deadlocks += 1,
            // A denied request is counted by its first answer.
            WaitEnd::Denied(_) => {}
            WaitEnd::Failed(_) | WaitEnd::Disconnected | WaitEnd::Lost => {}
        }
    }

    /// Counts holds that lapsed. A hash written by others can claim any number of them.
    pub fn count_lapsed(&mut self, holds: u64) {
        self.lapsed = self.lapsed.saturating_add(holds);
    }

    /// Counts holds that were released.
    pub fn count_released(&mut self, holds: u64) {
        self.released = self.released.saturating_add(holds);
    }
}

/// How far the sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// No sweep runs: this server is no primary, or the sweep could not start.
    #[default]
    Idle,
    /// The sweep has walked over so many % of the keys, 0 to 99.
    Running(u64),
    /// The sweep has walked over all keys.
    Done,
}
