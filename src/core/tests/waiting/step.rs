//! What can happen in the world, and what is told of it.

use super::world::{Client, Place};
use crate::core::{Millis, Want, Which};
use std::fmt;

/// A request for a hold.
#[derive(Clone, Copy)]
pub struct Ask {
    pub client: Client,
    pub place: Place,
    pub want: Want,
    pub once: bool,
    /// None: without end.
    pub lease: Option<Millis>,
    /// How long it waits; 0: without end.
    pub block: Option<Millis>,
    pub reserve: Option<Millis>,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask { client, place, want, once, lease, block, reserve } = self;
        write!(f, "Ask{{client {client} lock {place} {want:?} lease {lease:?}")?;
        write!(f, " once {once} block {block:?} reserve {reserve:?}}}")
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask(Ask),
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
    Force(Place),
    /// All holds of an owner end.
    Lapse {
        owner: u8,
        place: Place,
    },
    /// The reservation ends.
    ReservationEnds(Place),
    /// A waiter's time is up.
    TimeOut(Client),
    /// A waiter's connection closes, or CLIENT UNBLOCK names it.
    Leave(Client),
    Pass(Millis),
    /// The alarms of locks ring.
    Ring,
}

/// What somebody is told, at once or after waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Held,
    Refused,
    NotHeld,
    Deadlock,
    TimedOut,
    Left,
    Waiting,
}
