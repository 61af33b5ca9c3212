//! Answers to waiters: to be sent, or on their way.

use super::statistics::{is_deadlock, AnswerKind};
use super::tracked::Grant;
use super::waiter::Waiter;
use crate::core::{Millis, WaiterId};
use crate::engine::error::Error;
use hashbrown::HashMap;

/// What a waiter is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It has the hold.
    Held(Grant),
    /// Its time is up; what stands in the way ends in so many ms at the latest.
    TimedOut(Option<Millis>),
    /// It failed.
    Failed(Error),
}

/// A waiter whose answer is on its way.
pub struct InFlight {
    pub waiter: Waiter,
    /// What it was granted.
    pub grant: Option<Grant>,
    /// What the answer counts as.
    pub kind: AnswerKind,
}

/// The answers that were made and not yet delivered.
#[derive(Default)]
pub struct Deliveries {
    /// Those that wait to be sent.
    pub unsent: Vec<(WaiterId, Answer)>,
    /// All of them, until the server says what became of each.
    pub in_flight: HashMap<WaiterId, InFlight>,
}

impl Answer {
    /// What it counts as.
    pub fn kind(&self) -> AnswerKind {
        match self {
            Answer::Held(_) => AnswerKind::Granted,
            Answer::TimedOut(_) => AnswerKind::TimedOut,
            Answer::Failed(error) if is_deadlock(error) => AnswerKind::Deadlock,
            Answer::Failed(_) => AnswerKind::Failed,
        }
    }
}
