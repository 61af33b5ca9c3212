//! A client of the storm: its connection, and what it is waiting to be told.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::books::{Asked, Kind, Lock, Owner, Target, Which};
use support::wire::Wire;

/// What is asked of the server to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Read,
    Write,
    Upgrade,
}

impl Want {
    pub fn kind(self) -> Kind {
        match self {
            Want::Read => Kind::Read,
            Want::Write | Want::Upgrade => Kind::Write,
        }
    }
}

/// A request for a hold.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    pub want: Want,
    pub once: bool,
    pub session: bool,
    pub block: Option<Duration>,
}

/// What was sent.
#[derive(Clone, Debug)]
pub enum What {
    /// SELECT.
    Select,
    /// CLIENT ID.
    Id,
    Take(Asked, Take),
    /// What is given back, and until when it certainly was held.
    Give(Asked, Which, Option<Instant>),
    Renew(Asked),
    Downgrade(Asked),
    /// DEL, FORCEUNLOCK, FLUSHALL.
    Remove(Vec<Target>),
    /// CLIENT UNBLOCK of the client with this number, and what may end if the
    /// server closes its connection.
    Unblock(usize, Vec<Target>),
    /// CLIENT KILL of the client with this number.
    Kill(usize),
}

#[derive(Clone, Debug)]
pub struct Pending {
    pub what: What,
    /// When it must have been answered; None: it may wait without end.
    pub deadline: Option<Instant>,
}

pub struct Client {
    pub wire: Wire,
    pub db: u8,
    /// The owner that nobody else uses.
    pub own: Option<Owner>,
    pub id: Option<i64>,
    pub pending: VecDeque<Pending>,
    /// Holds that it may have, by what it was told or never learnt.
    pub held: Vec<(Lock, Owner, Kind)>,
    /// Where it asked for session holds on this connection.
    pub sessions: BTreeSet<(Lock, Owner)>,
    /// Those that a CLIENT KILL is about to end.
    pub doomed: Option<BTreeSet<(Lock, Owner)>>,
    /// CLIENT UNBLOCKs of it that are under way, and when the last was over.
    pub unblocks: u32,
    pub unblocked: Option<Instant>,
    /// When it does something next.
    pub next: Instant,
}

impl Client {
    pub fn new(wire: Wire, db: u8, own: Option<Owner>, now: Instant) -> Self {
        Self {
            wire,
            db,
            own,
            id: None,
            pending: VecDeque::new(),
            held: Vec::new(),
            sessions: BTreeSet::new(),
            doomed: None,
            unblocks: 0,
            unblocked: None,
            next: now,
        }
    }

    /// The request that it waits for in the server, if it does.
    pub fn blocking(&self) -> Option<(Asked, Take)> {
        match self.pending.front() {
            Some(Pending { what: What::Take(asked, take), .. }) if take.block.is_some() => {
                Some((*asked, *take))
            }
            _ => None,
        }
    }

    /// Whether a CLIENT UNBLOCK may have met what was sent then.
    pub fn may_be_unblocked(&self, at: Instant) -> bool {
        self.unblocks > 0 || self.unblocked.is_some_and(|unblocked| unblocked >= at)
    }
}
