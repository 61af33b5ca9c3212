//! A lock as the keyspace has it, with the holds of all owners. Each rule gets a snapshot for
//! one owner, with the read scope that the engine would use.

use super::model::NEVER;
use crate::core::{
    acquire, downgrade, release, renew, upgrade, End, Holds, Kind, Lock, Millis, Mode, NotHeld,
    Others, Refusal, Request, RequestError, Reservation, Verdict, Which,
};
use std::collections::BTreeMap;

type Owner = u8;

/// Something that happens to a lock.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Read {
        owner: Owner,
        lease: Millis,
        once: bool,
    },
    Write {
        owner: Owner,
        lease: Millis,
        once: bool,
        reserve: Option<Millis>,
    },
    GiveRead(Owner),
    GiveWrite(Owner),
    GiveAny(Owner),
    GiveAll(Owner),
    Renew {
        owner: Owner,
        lease: Millis,
    },
    Upgrade {
        owner: Owner,
        lease: Millis,
    },
    Downgrade {
        owner: Owner,
        lease: Millis,
    },
    /// An external change removes the expiry of the hash.
    Persist,
    /// Time elapses, in ms.
    Elapse(Millis),
}

/// The reply to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// Refused: this is when the obstacle ends.
    Refused(Millis),
    /// The hold was given back: whether the lock is free now.
    Freed(bool),
    NotHeld(NotHeld),
}

/// The whole state of a lock. An end is a time or [`NEVER`].
#[derive(Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// None: the lock is free.
    pub end: Option<Millis>,
    /// For each owner the ends of its read holds, lowest number first, and its number of write
    /// holds.
    pub holds: BTreeMap<Owner, (Vec<Millis>, u64)>,
    pub reserved: Option<(Owner, Millis)>,
}

/// How much of the other holders a snapshot has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadScope {
    /// Nothing when the owner's own holds tell the mode, else like `Presence`.
    Mode,
    /// Whether there are other holders, without their ends.
    Presence,
    /// The other holders with the latest of their ends.
    Ends,
}

/// The lock and the time.
pub struct World {
    now: Millis,
    end: End,
    holds: BTreeMap<Owner, Holds>,
    reserved: Option<(Owner, Millis)>,
}

impl World {
    pub fn new() -> World {
        World { now: 0, end: End::Never, holds: BTreeMap::new(), reserved: None }
    }

    pub fn step(&mut self, step: Step) -> Reply {
        let end = |lease| End::of_lease(self.now, lease).unwrap();
        match step {
            Step::Read { owner, lease, once } => self
                .acquire(owner, Request { kind: Kind::Read, lease: end(lease), once, meant: None }),
            Step::Write { owner, lease, once, reserve } => {
                let request = Request { kind: Kind::Write, lease: end(lease), once, meant: None };
                let reply = self.acquire(owner, request);
                match (reply, self.reservation(owner), reserve) {
                    (Reply::Done, Reservation::Own, _) => self.reserved = None,
                    (Reply::Refused(_), Reservation::None | Reservation::Own, Some(ms)) => {
                        self.reserved = Some((owner, self.now + ms));
                    }
                    _ => {}
                }
                reply
            }
            Step::GiveRead(owner) => self.release(owner, Which::One(Kind::Read)),
            Step::GiveWrite(owner) => self.release(owner, Which::One(Kind::Write)),
            Step::GiveAny(owner) => self.release(owner, Which::Any),
            Step::GiveAll(owner) => self.release(owner, Which::All),
            Step::Renew { owner, lease } => {
                let after = renew(&self.snapshot(owner, ReadScope::Mode), end(lease));
                self.put(owner, after)
            }
            Step::Upgrade { owner, lease } => {
                let lock = self.snapshot(owner, ReadScope::Presence);
                match upgrade(
                    &lock,
                    Request { kind: Kind::Write, lease: end(lease), once: false, meant: None },
                ) {
                    Ok(verdict) => self.answer(owner, verdict),
                    Err(RequestError::NotHeld(reason)) => Reply::NotHeld(reason),
                    Err(RequestError::TooMany(error)) => panic!("{error:?}"),
                }
            }
            Step::Downgrade { owner, lease } => {
                let after = downgrade(&self.snapshot(owner, ReadScope::Ends), end(lease));
                self.put(owner, after)
            }
            Step::Persist => {
                self.end = End::Never;
                Reply::Done
            }
            Step::Elapse(ms) => {
                self.elapse(ms);
                Reply::Done
            }
        }
    }

    pub fn info(&self) -> LockInfo {
        let holds = self.holds.iter().map(|(owner, holds)| {
            (*owner, (holds.reads.iter().copied().map(time).collect(), holds.writes))
        });
        LockInfo {
            end: (!self.holds.is_empty()).then(|| time(self.end)),
            holds: holds.collect(),
            reserved: self.reserved,
        }
    }

    fn acquire(&mut self, owner: Owner, request: Request) -> Reply {
        let lock = self.snapshot(owner, ReadScope::Mode);
        let verdict = acquire(&lock, request, self.reservation(owner)).unwrap();
        self.answer(owner, verdict)
    }

    fn release(&mut self, owner: Owner, which: Which) -> Reply {
        match release(&self.snapshot(owner, ReadScope::Ends), which, None) {
            Ok(after) => {
                let free = after.is_free();
                self.put(owner, Ok(after));
                Reply::Freed(free)
            }
            Err(reason) => Reply::NotHeld(reason),
        }
    }

    fn answer(&mut self, owner: Owner, verdict: Verdict) -> Reply {
        match (verdict, self.reserved) {
            (Verdict::Granted(after), _) => self.put(owner, Ok(after)),
            (Verdict::Refused(Refusal::Reserved), Some((_, end))) => Reply::Refused(end),
            (Verdict::Refused(_), _) => Reply::Refused(time(self.end)),
        }
    }

    fn put(&mut self, owner: Owner, after: Result<Lock, NotHeld>) -> Reply {
        match after {
            Ok(Lock { own, end, .. }) => {
                self.holds.insert(owner, own);
                self.holds.retain(|_, holds| !holds.is_empty());
                self.end = end;
                Reply::Done
            }
            Err(reason) => Reply::NotHeld(reason),
        }
    }

    fn elapse(&mut self, ms: Millis) {
        self.now += ms;
        let (now, over) = (self.now, self.end.is_past(self.now));
        for holds in self.holds.values_mut() {
            holds.reads.retain(|end| !over && !end.is_past(now));
            holds.writes = if over { 0 } else { holds.writes };
        }
        self.holds.retain(|_, holds| !holds.is_empty());
        self.reserved = self.reserved.filter(|(_, end)| now <= *end);
    }

    fn reservation(&self, owner: Owner) -> Reservation {
        match self.reserved {
            None => Reservation::None,
            Some((by, _)) if by == owner => Reservation::Own,
            Some(_) => Reservation::Other,
        }
    }

    fn snapshot(&self, owner: Owner, scope: ReadScope) -> Lock {
        if self.holds.is_empty() {
            return Lock::free();
        }
        let own = self.holds.get(&owner).cloned().unwrap_or_default();
        let written = self.holds.values().any(|holds| holds.writes > 0);
        let tells_mode = if written { own.writes > 0 } else { !own.reads.is_empty() };
        let others = if scope == ReadScope::Mode && tells_mode {
            Others::None
        } else {
            self.others(owner, scope)
        };
        Lock { own, others, end: self.end }
    }

    fn others(&self, owner: Owner, scope: ReadScope) -> Others {
        let others = || self.holds.iter().filter(|(other, _)| **other != owner);
        if others().any(|(_, holds)| holds.writes > 0) {
            return Others::Writer;
        }
        match others().flat_map(|(_, holds)| &holds.reads).max() {
            None => Others::None,
            Some(latest) => {
                Others::Readers { latest: (scope == ReadScope::Ends).then_some(*latest) }
            }
        }
    }

    /// Checks what must be true of every state.
    pub fn check(&self) {
        let mut writers = self.holds.iter().filter(|(_, holds)| holds.writes > 0);
        if let Some((writer, _)) = writers.next() {
            assert!(self.holds.keys().all(|owner| owner == writer), "a writer is alone");
        }
        let reads = self.holds.values().flat_map(|holds| &holds.reads);
        assert!(reads.max() <= Some(&self.end), "the lock outlives its read holds");
        let mode =
            self.holds.keys().next().map(|owner| self.snapshot(*owner, ReadScope::Ends).mode());
        let writes = self.holds.values().any(|holds| holds.writes > 0);
        assert_eq!(
            mode,
            (!self.holds.is_empty()).then_some(Some(if writes { Mode::Write } else { Mode::Read }))
        );
    }
}

fn time(end: End) -> Millis {
    match end {
        End::At(at) => at,
        End::Never => NEVER,
    }
}
