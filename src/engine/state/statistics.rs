//! What INFO tells: what has happened since the module was loaded, and what is
//! now. `docs/monitoring.md` says what each figure means.
//!
//! A request is counted by its answer: at once, or, when it waited, when the
//! server has taken the answer for its connection. So a grant that is taken
//! back because nobody was there to hear of it is counted nowhere, and clients
//! come to the same statistics.

use super::histogram::Histogram;
use crate::core::Millis;
use crate::engine::error::Error;
use crate::engine::request::Acquired;

/// What has happened so far.
#[derive(Default)]
pub struct Statistics {
    /// Requests that were granted.
    pub acquired: u64,
    /// Requests that were refused at once.
    pub refused: u64,
    /// Requests that began to wait.
    pub waited: u64,
    /// Those of them that were granted.
    pub granted_after_waiting: u64,
    /// How long these had waited.
    pub wait_times: Histogram,
    /// Those whose time was up.
    pub timeouts: u64,
    /// Holds that were given back.
    pub released: u64,
    /// Holds that lapsed.
    pub lapsed: u64,
    /// Requests that would have waited for themselves.
    pub deadlocks: u64,
    /// Session holds whose connection closed.
    pub disconnect_releases: u64,
    /// The longest that the server was busy with our timers at once, in µs.
    pub longest_pass: u64,
}

/// What a waiter was told, as far as that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// The hold.
    Granted,
    /// That its time is up.
    TimedOut,
    /// That it would wait for itself.
    Deadlock,
    /// Another error.
    Failed,
}

impl Statistics {
    /// A request was answered at once.
    pub fn answered(&mut self, answer: &Result<Acquired, Error>) {
        match answer {
            Ok(Acquired::Held(_)) => self.acquired += 1,
            Ok(Acquired::Refused(_)) => self.refused += 1,
            Err(error) if is_deadlock(error) => self.deadlocks += 1,
            Ok(Acquired::Waiting) => self.waited += 1,
            Err(_) => {}
        }
    }

    /// A waiter has its answer, after so many ms.
    pub fn delivered(&mut self, kind: AnswerKind, waited: Millis) {
        match kind {
            AnswerKind::Granted => {
                self.acquired += 1;
                self.granted_after_waiting += 1;
                self.wait_times.add(waited);
            }
            AnswerKind::TimedOut => self.timeouts += 1,
            AnswerKind::Deadlock => self.deadlocks += 1,
            AnswerKind::Failed => {}
        }
    }

    /// Holds lapsed. A foreign hash may have counted any number.
    pub fn count_lapsed(&mut self, holds: u64) {
        self.lapsed = self.lapsed.saturating_add(holds);
    }

    /// Holds were given back.
    pub fn count_released(&mut self, holds: u64) {
        self.released = self.released.saturating_add(holds);
    }
}

/// Whether an error counts as a deadlock.
pub fn is_deadlock(error: &Error) -> bool {
    matches!(error, Error::Deadlock(_) | Error::OtherUpgrade(_))
}

/// How far the search for locks that nobody has touched has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// There is none: this server is no primary.
    #[default]
    Idle,
    /// It has seen so many of 100 keys.
    Running(u64),
    /// It has seen them all.
    Done,
}
