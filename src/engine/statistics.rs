//! What INFO tells: what has happened since the module was loaded, and what is
//! now. `docs/monitoring.md` says what each figure means.
//!
//! A request is counted by its answer: at once, or, when it waited, when the
//! server has taken the answer for its connection. So a grant that is taken
//! back because nobody was there to hear of it is counted nowhere, and clients
//! come to the same statistics.

use super::clock::Steady;
use super::deliveries::{Answer, InFlight};
use super::histogram::Histogram;
use super::{Acquired, Engine, Error};

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
pub(super) enum AnswerKind {
    Granted,
    TimedOut,
    Deadlock,
    Failed,
}

impl AnswerKind {
    pub fn of(answer: &Answer) -> AnswerKind {
        match answer {
            Answer::Held(_) => AnswerKind::Granted,
            Answer::TimedOut(_) => AnswerKind::TimedOut,
            Answer::Failed(error) if is_deadlock(error) => AnswerKind::Deadlock,
            Answer::Failed(_) => AnswerKind::Failed,
        }
    }
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

    /// A waiter has its answer.
    pub(super) fn delivered(&mut self, in_flight: &InFlight, now: Steady) {
        match in_flight.kind {
            AnswerKind::Granted => {
                self.acquired += 1;
                self.granted_after_waiting += 1;
                self.wait_times.add(now.since(in_flight.waiter.request.since));
            }
            AnswerKind::TimedOut => self.timeouts += 1,
            AnswerKind::Deadlock => self.deadlocks += 1,
            AnswerKind::Failed => {}
        }
    }

    /// Holds lapsed. A foreign hash may have counted any number.
    pub(super) fn count_lapsed(&mut self, holds: u64) {
        self.lapsed = self.lapsed.saturating_add(holds);
    }

    /// Holds were given back.
    pub(super) fn count_released(&mut self, holds: u64) {
        self.released = self.released.saturating_add(holds);
    }
}

fn is_deadlock(error: &Error) -> bool {
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

impl Engine {
    /// How many clients wait.
    pub fn waiters_now(&self) -> usize {
        self.waits.len()
    }

    /// For how many locks.
    pub fn queues_now(&self) -> usize {
        self.waits.queue_count()
    }

    /// How many holds are bound to a connection.
    pub fn session_holds_now(&self) -> usize {
        self.tracked.sessions()
    }
}
