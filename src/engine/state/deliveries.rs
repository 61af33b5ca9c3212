//! Answers to waiters that are not delivered yet.

use super::statistics::{is_deadlock, AnswerKind};
use super::tracked::Grant;
use super::waiter::Waiter;
use crate::core::{Millis, WaiterId};
use crate::engine::error::Error;
use hashbrown::HashMap;

/// The answer to a waiter.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The waiter was granted this.
    Held(Grant),
    /// The wait timed out. The holds or the reservation in the way end in so many ms at the latest;
    /// None: never by themselves.
    TimedOut(Option<Millis>),
    /// The request failed.
    Failed(Error),
}

/// A waiter whose answer is in flight.
pub struct InFlight {
    pub waiter: Waiter,
    /// What the waiter was granted, if it was.
    pub grant: Option<Grant>,
    /// What the statistics count.
    pub kind: AnswerKind,
}

/// Answers that were made and not delivered yet.
#[derive(Default)]
pub struct Deliveries {
    /// The answers to send.
    pub unsent: Vec<(WaiterId, Answer)>,
    /// All answers, sent or not, until the server reports what became of each.
    pub in_flight: HashMap<WaiterId, InFlight>,
}

impl Answer {
    /// What the statistics count for this answer.
    pub fn kind(&self) -> AnswerKind {
        match self {
            Answer::Held(_) => AnswerKind::Granted,
            Answer::TimedOut(_) => AnswerKind::TimedOut,
            Answer::Failed(error) if is_deadlock(error) => AnswerKind::Deadlock,
            Answer::Failed(_) => AnswerKind::Failed,
        }
    }
}
