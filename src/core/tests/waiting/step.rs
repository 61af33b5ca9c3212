//! What can happen in the world, and the replies.

use super::world::{Client, Place};
use crate::core::{Millis, Want, Which};
use std::fmt;

/// A request for a hold.
#[derive(Clone, Copy)]
pub struct Request {
    pub client: Client,
    pub place: Place,
    pub want: Want,
    /// The second lock of a joint request.
    pub second: Option<(Place, Want)>,
    pub once: bool,
    /// In ms; None: it never ends.
    pub lease: Option<Millis>,
    /// BLOCK: how long it waits, in ms; 0: without end; None: not at all.
    pub block: Option<Millis>,
    /// RESERVE: how long a refused writer reserves the lock, in ms.
    pub reserve: Option<Millis>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { client, place, want, second, once, lease, block, reserve } = self;
        write!(f, "Request{{client {client} lock {place} {want:?}")?;
        if let Some((place, want)) = second {
            write!(f, " and lock {place} {want:?}")?;
        }
        write!(f, " lease {lease:?}")?;
        write!(f, " once {once} block {block:?} reserve {reserve:?}}}")
    }
}

impl Request {
    /// What it asks for, lock by lock.
    pub fn places(&self) -> impl Iterator<Item = (Place, Want)> + Clone {
        [(self.place, self.want)].into_iter().chain(self.second)
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Acquire(Request),
    Release {
        client: Client,
        place: Place,
        which: Which,
    },
    Downgrade {
        client: Client,
        place: Place,
        lease: Option<Millis>,
    },
    Renew {
        client: Client,
        place: Place,
        lease: Option<Millis>,
    },
    /// FORCEUNLOCK.
    Force(Place),
    /// All holds of an owner end.
    Lapse {
        owner: u8,
        place: Place,
    },
    /// The reservation of this lock ends.
    ReservationEnds(Place),
    /// The timeout of a waiter ends.
    TimeOut(Client),
    /// A waiter's connection closes, or CLIENT UNBLOCK names it.
    Leave(Client),
    /// Time elapses, in ms.
    Elapse(Millis),
    /// The timers that are due fire: locks are refreshed, waiters time out.
    FireTimers,
}

/// The reply to a client, at once or after waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Held,
    Refused,
    NotHeld,
    Deadlock,
    /// The lock cannot be read.
    WrongType,
    TimedOut,
    /// The wait ended by [`Step::Leave`].
    Removed,
    Waiting,
}
