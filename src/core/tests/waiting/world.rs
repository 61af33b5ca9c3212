//! Some locks, and clients that hold them and wait for them. What happens goes
//! step by step as in the engine (acquire, wait, serve, release, lapse), with
//! the real rules, queues and search for circles; where the engine has keys,
//! alarms and replies, here is a plain value.

use super::rules;
use super::step::{Ask, Reply, Step};
use crate::core::{
    acquire, downgrade, release, renew, upgrade, End, Holds, Kind, Lock, Millis, Mode, Others,
    OwnerId, Policy, Queue, Request, Reservation, Verdict, WaiterId, Want,
};
use std::collections::{BTreeMap, BTreeSet};

/// Which lock.
pub type Place = usize;
/// Which client.
pub type Client = usize;

/// One lock.
#[derive(Default)]
pub struct LockHere {
    pub holds: BTreeMap<u8, Holds>,
    pub end: Option<End>,
    pub reserved: Option<(u8, End)>,
    pub queue: Queue,
    /// Its alarm is about to ring.
    pub due: bool,
}

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub client: Client,
    pub owner: u8,
    pub place: Place,
    pub want: Want,
    pub once: bool,
    pub lease: Option<Millis>,
    pub until: Option<Millis>,
}

/// The world.
pub struct World {
    pub policy: Policy,
    /// The owner that each client speaks for.
    pub owners: Vec<u8>,
    pub locks: Vec<LockHere>,
    pub waiters: BTreeMap<WaiterId, Waiter>,
    /// What those who waited were told.
    pub answers: Vec<(WaiterId, Reply)>,
    pub last_waiter: WaiterId,
    /// The owners who had several waiters, one of which has left.
    pub unsettled: BTreeSet<u8>,
    pub now: Millis,
    /// What should not have happened.
    pub wrongs: Vec<String>,
}

impl World {
    pub fn new(policy: Policy, locks: usize, owners: &[u8]) -> World {
        World {
            policy,
            owners: owners.to_vec(),
            locks: (0..locks).map(|_| LockHere::default()).collect(),
            waiters: BTreeMap::new(),
            answers: Vec::new(),
            last_waiter: 0,
            unsettled: BTreeSet::new(),
            now: 0,
            wrongs: Vec::new(),
        }
    }

    pub fn waits(&self, client: Client) -> Option<WaiterId> {
        self.waiters.iter().find(|(_, waiter)| waiter.client == client).map(|(id, _)| *id)
    }

    /// One step. A client that waits can say nothing.
    pub fn step(&mut self, step: Step) -> Option<Reply> {
        let speaker = match step {
            Step::Ask(Ask { client, .. })
            | Step::Release { client, .. }
            | Step::Downgrade { client, .. }
            | Step::Renew { client, .. } => Some(client),
            _ => None,
        };
        if speaker.is_some_and(|client| self.waits(client).is_some()) {
            return None;
        }
        match step {
            Step::Ask(ask) => Some(self.ask(ask)),
            Step::Release { client, place, which } => {
                self.catch_up(place);
                self.change(client, place, |lock, _| release(lock, which, None).ok())
            }
            Step::Downgrade { client, place, lease } => {
                self.catch_up(place);
                let end = self.end(lease);
                self.change(client, place, |lock, _| downgrade(lock, end).ok())
            }
            Step::Renew { client, place, lease } => {
                self.catch_up(place);
                let (owner, end) = (self.owners[client], self.end(lease));
                if let Ok(after) = renew(&self.seen(place, owner), end) {
                    self.commit(place, owner, after);
                }
                Some(Reply::Held)
            }
            Step::Force(place) => {
                self.catch_up(place);
                self.locks[place].holds.clear();
                self.locks[place].reserved = None;
                self.serve(place);
                None
            }
            Step::Lapse { owner, place } => {
                self.locks[place].holds.remove(&owner)?;
                self.locks[place].due = true;
                None
            }
            Step::ReservationEnds(place) => {
                self.locks[place].reserved.take()?;
                self.locks[place].due = true;
                None
            }
            Step::TimeOut(client) => {
                let id = self.waits(client)?;
                self.answer(id, Reply::TimedOut);
                self.ring();
                None
            }
            Step::Leave(client) => {
                let id = self.waits(client)?;
                self.answer(id, Reply::Left);
                None
            }
            Step::Pass(ms) => {
                self.now += ms;
                self.lapse();
                None
            }
            Step::Ring => {
                self.ring();
                None
            }
        }
    }

    fn change(
        &mut self,
        client: Client,
        place: Place,
        rule: impl FnOnce(&Lock, u8) -> Option<Lock>,
    ) -> Option<Reply> {
        let owner = self.owners[client];
        let Some(after) = rule(&self.seen(place, owner), owner) else {
            return Some(Reply::NotHeld);
        };
        self.commit(place, owner, after);
        self.serve(place);
        Some(Reply::Held)
    }

    fn end(&self, lease: Option<Millis>) -> End {
        lease.map_or(End::Never, |ms| End::At(self.now + ms))
    }

    /// Engine::acquire.
    fn ask(&mut self, ask: Ask) -> Reply {
        let Ask { client, place, want, once, lease, block, reserve } = ask;
        let owner = self.owners[client];
        self.catch_up(place);
        let until = block.filter(|ms| *ms > 0).map(|ms| self.now + ms);
        let waiter = Waiter { client, owner, place, want, once, lease, until };
        match self.take(waiter, WaiterId::MAX, true) {
            Ok(true) => {
                self.serve_holder(place, owner);
                if want == Want::Read && self.policy == Policy::PreferReaders {
                    self.serve(place);
                }
                return Reply::Held;
            }
            Ok(false) => {}
            Err(reply) => return reply,
        }
        if rules::may_have(self, place, owner, want, WaiterId::MAX) {
            self.wrongs.push(format!("{ask:?} was refused and need not be"));
        }
        if block.is_some() {
            return self.wait(waiter);
        }
        let lock = &mut self.locks[place];
        let others = lock.reserved.is_some_and(|(by, _)| by != owner);
        if let Some(ms) = reserve.filter(|_| !others && lock.queue.is_empty()) {
            lock.reserved = Some((owner, End::At(self.now + ms)));
        }
        Reply::Refused
    }

    /// Engine::take. `id`: where it stands among those who wait.
    pub fn take(&mut self, waiter: Waiter, id: WaiterId, behind: bool) -> Result<bool, Reply> {
        let Waiter { owner, place, want, once, .. } = waiter;
        let seen = self.seen(place, owner);
        let lease = self.end(waiter.lease);
        let here = &self.locks[place];
        let joins = self.policy == Policy::PreferReaders && seen.mode() == Some(Mode::Read);
        let reservation = match here.reserved {
            _ if want == Want::Upgrade => Reservation::None,
            _ if want == Want::Read && !seen.own.is_empty() => Reservation::None,
            None => Reservation::None,
            Some((by, _)) if by == owner => Reservation::Own,
            Some(_) if joins && want == Want::Read => Reservation::None,
            Some(_) => Reservation::Other,
        };
        let behind = behind
            && !want.is_open_to(&seen)
            && here.queue.holds_up(&name(owner), want, seen.mode(), self.policy, reservation);
        let here_reserved = here.reserved.map(|(by, _)| by);
        let request = |kind| Request { kind, lease, once, meant: None };
        let verdict = match want {
            Want::Upgrade => {
                upgrade(&seen, request(Kind::Write)).unwrap().map_err(|_| Reply::NotHeld)?
            }
            _ if behind => return Ok(false),
            Want::Read => acquire(&seen, request(Kind::Read), reservation).unwrap(),
            Want::Write => acquire(&seen, request(Kind::Write), reservation).unwrap(),
        };
        let Verdict::Granted(after) = verdict else {
            return Ok(false);
        };
        if !rules::may_have(self, place, owner, want, id) {
            self.wrongs.push(format!("{waiter:?} was granted and must not be"));
        }
        self.commit(place, owner, after);
        if want != Want::Read && here_reserved == Some(owner) {
            self.locks[place].reserved = None;
        }
        Ok(true)
    }

    /// Engine::catch_up: whatever is due is done before a command looks.
    fn catch_up(&mut self, place: Place) {
        if std::mem::take(&mut self.locks[place].due) {
            self.serve(place);
        }
    }

    fn ring(&mut self) {
        while let Some(place) = self.locks.iter().position(|lock| lock.due) {
            self.catch_up(place);
        }
        let up = |waiter: &Waiter| waiter.until.is_some_and(|until| self.now > until);
        if let Some(id) = self.waiters.iter().find(|(_, w)| up(w)).map(|(id, _)| *id) {
            self.answer(id, Reply::TimedOut);
            self.ring();
        }
    }

    /// Holds that are over count no more, whenever somebody looks.
    fn lapse(&mut self) {
        let now = self.now;
        for lock in &mut self.locks {
            let over = lock.end.is_some_and(|end| end.is_past(now));
            let count = |lock: &LockHere| -> u64 {
                lock.holds.values().map(|holds| holds.reads.len() as u64 + holds.writes).sum()
            };
            let before = (count(lock), lock.reserved);
            for holds in lock.holds.values_mut() {
                holds.reads.retain(|end| !over && !end.is_past(now));
                holds.writes = if over { 0 } else { holds.writes };
            }
            lock.holds.retain(|_, holds| !holds.is_empty());
            lock.reserved = lock.reserved.filter(|(_, end)| !end.is_past(now));
            lock.due |= before != (count(lock), lock.reserved);
        }
    }

    fn commit(&mut self, place: Place, owner: u8, after: Lock) {
        let lock = &mut self.locks[place];
        lock.end = Some(after.end);
        lock.holds.insert(owner, after.own);
        lock.holds.retain(|_, holds| !holds.is_empty());
    }

    pub fn seen(&self, place: Place, owner: u8) -> Lock {
        let here = &self.locks[place];
        if here.holds.is_empty() {
            return Lock::free();
        }
        let others = here.holds.iter().filter(|(other, _)| **other != owner);
        let latest = others.clone().flat_map(|(_, holds)| holds.reads.iter()).max().copied();
        let others = match latest {
            _ if others.clone().any(|(_, holds)| holds.writes > 0) => Others::Writer,
            None => Others::None,
            latest => Others::Readers { latest },
        };
        let own = here.holds.get(&owner).cloned().unwrap_or_default();
        Lock { own, others, end: here.end.unwrap_or(End::Never) }
    }
}

/// The name of an owner.
pub fn name(owner: u8) -> OwnerId {
    OwnerId::from([owner].as_slice())
}
