//! Answers to waiters that are not delivered yet.

use super::tracked::Grant;
use super::wait_end::WaitEnd;
use super::waiter::Waiter;
use crate::core::{give_room_back, Millis, WaiterId};
use crate::engine::error::Error;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// The answer to a waiter.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The waiter was granted this, place by place.
    Held(Grants),
    /// The wait timed out. The holds or the reservation in the way end in so many ms at the latest;
    /// None: never by themselves.
    TimedOut(Option<Millis>),
    /// The request failed.
    Failed(Error),
}

/// What a request was granted: one grant for each lock.
pub type Grants = SmallVec<[Grant; 1]>;

/// A waiter whose answer is in flight.
pub struct InFlight {
    pub waiter: Waiter,
    /// What the waiter was granted, place by place. Empty: nothing.
    pub grants: Grants,
    /// How the wait ends if the answer is delivered.
    pub end: WaitEnd,
}

/// Answers that were made and not delivered yet.
#[derive(Default)]
pub struct Deliveries {
    /// The answers to send.
    pub unsent: Vec<(WaiterId, Answer)>,
    /// All answers, sent or not, until the server reports what became of each.
    in_flight: HashMap<WaiterId, InFlight>,
}

impl Deliveries {
    /// Adds an answer to send.
    pub fn add(&mut self, id: WaiterId, answer: Answer, in_flight: InFlight) {
        self.in_flight.insert(id, in_flight);
        self.unsent.push((id, answer));
    }

    /// Removes an answer: the server has reported what became of it.
    pub fn remove(&mut self, id: WaiterId) -> Option<InFlight> {
        let in_flight = self.in_flight.remove(&id)?;
        give_room_back(&mut self.in_flight);
        Some(in_flight)
    }
}

impl Answer {
    /// How the wait ends if this answer is delivered.
    pub fn end(&self) -> WaitEnd {
        match self {
            Answer::Held(grants) => WaitEnd::Granted(grants.len() as u64),
            Answer::TimedOut(_) => WaitEnd::TimedOut,
            Answer::Failed(error) => WaitEnd::Failed(error.clone()),
        }
    }
}
