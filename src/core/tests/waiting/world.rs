//! Some locks, and clients that hold them and wait for them. The rules, the waiting and
//! the search for circles are the shipped ones; where the engine has keys, timers and
//! replies, here are plain values.

use super::circles;
use super::rules;
use super::step::{Ask, Reply, Step};
use crate::core::wait::{self, Denied, Locks, WaitList};
use crate::core::{
    decide, downgrade, lets_others_in, release, renew, reservation, End, Holds, Lock, Millis,
    Others, OwnerId, Policy, Reservation, Terms, Verdict, WaiterId, Want,
};
use std::collections::BTreeMap;

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
    /// Its alarm is about to ring.
    pub due: bool,
}

/// A request that is tried, or waits.
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
    pub waits: WaitList<Place, Waiter>,
    /// What those who waited were told.
    pub answers: Vec<(WaiterId, Reply)>,
    pub now: Millis,
    /// Whether a circle stood when the request came that begins to wait now.
    pub entering: Option<bool>,
    /// Whether the next attempt panics.
    pub panics: bool,
    /// What should not have happened.
    pub wrongs: Vec<String>,
}

impl World {
    pub fn new(policy: Policy, locks: usize, owners: &[u8]) -> World {
        let mut waits = WaitList::default();
        waits.rules = wait::Rules { policy, deadlock_detection: true, max_waiters: 0 };
        World {
            policy,
            owners: owners.to_vec(),
            locks: (0..locks).map(|_| LockHere::default()).collect(),
            waits,
            answers: Vec::new(),
            now: 0,
            entering: None,
            panics: false,
            wrongs: Vec::new(),
        }
    }

    pub fn waits(&self, client: Client) -> Option<WaiterId> {
        self.waiters().find(|(_, waiter)| waiter.client == client).map(|(id, _)| id)
    }

    /// All waiters, in the order of their arrival.
    pub fn waiters(&self) -> impl Iterator<Item = (WaiterId, Waiter)> + Clone + '_ {
        self.waits.iter().map(|(id, waiter)| (id, waiter.request))
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
                wait::serve(self, &place);
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
                self.leave(id, Reply::TimedOut);
                self.ring();
                None
            }
            Step::Leave(client) => {
                let id = self.waits(client)?;
                self.leave(id, Reply::Left);
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
        wait::serve(self, &place);
        Some(Reply::Held)
    }

    fn end(&self, lease: Option<Millis>) -> End {
        lease.map_or(End::Never, |ms| End::At(self.now + ms))
    }

    fn ask(&mut self, ask: Ask) -> Reply {
        let Ask { client, place, want, once, lease, block, reserve } = ask;
        let owner = self.owners[client];
        self.catch_up(place);
        let until = block.filter(|ms| *ms > 0).map(|ms| self.now + ms);
        let waiter = Waiter { client, owner, place, want, once, lease, until };
        match self.take(waiter, WaiterId::MAX, true) {
            Ok(true) => {
                wait::serve_holder(self, &place, &name(owner));
                if lets_others_in(want, self.policy) {
                    wait::serve(self, &place);
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
        let seen = self.seen(place, owner);
        let reservation = self.reservation(place, owner, want, &seen);
        if let Some(ms) = reserve.filter(|_| self.waits.may_reserve(&place, reservation)) {
            self.locks[place].reserved = Some((owner, End::At(self.now + ms)));
        }
        Reply::Refused
    }

    fn wait(&mut self, waiter: Waiter) -> Reply {
        let Waiter { owner, place, want, .. } = waiter;
        let seen = self.seen(place, owner);
        self.entering = Some(circles::stand(self));
        let entered = wait::enter(self, &seen, wait::Waiter::new(name(owner), place, want, waiter));
        self.entering = None;
        let id = match entered {
            Ok(id) => id,
            Err(denied) => {
                // One that would wait for itself names nobody else.
                if matches!(denied, Denied::Deadlock(circle) if circle.len() > 1) {
                    self.judge(WaiterId::MAX - 1, waiter);
                }
                return Reply::Deadlock;
            }
        };
        wait::serve(self, &place);
        match self.answers.iter().position(|(answered, _)| *answered == id) {
            None => Reply::Waiting,
            Some(at) => self.answers.swap_remove(at).1,
        }
    }

    fn reservation(&self, place: Place, owner: u8, want: Want, seen: &Lock) -> Reservation {
        let by = self.locks[place].reserved.map(|(by, _)| [by]);
        reservation(by.as_ref().map(|by| by.as_slice()), &[owner], want, seen, self.policy)
    }

    /// Tries a request. `id`: where it stands among those that wait.
    pub fn take(&mut self, waiter: Waiter, id: WaiterId, behind: bool) -> Result<bool, Reply> {
        let Waiter { owner, place, want, once, lease, .. } = waiter;
        let seen = self.seen(place, owner);
        let reservation = self.reservation(place, owner, want, &seen);
        let behind = behind && self.waits.holds_up(&place, &seen, &[owner], want, reservation);
        let terms = Terms { lease: self.end(lease), once, meant: None };
        let verdict = decide(&seen, want, terms, reservation, behind);
        let Verdict::Granted(after) = verdict.map_err(|_| Reply::NotHeld)? else {
            return Ok(false);
        };
        if !rules::may_have(self, place, owner, want, id) {
            self.wrongs.push(format!("{waiter:?} was granted and must not be"));
        }
        self.commit(place, owner, after);
        if want != Want::Read && reservation == Reservation::Own {
            self.locks[place].reserved = None;
        }
        Ok(true)
    }

    /// A waiter was told of a circle.
    pub fn judge(&mut self, id: WaiterId, waiter: Waiter) {
        if !circles::were_closed_by(self, id, waiter) {
            self.wrongs.push(format!("waiter {id} closes no circle and is told so"));
        }
    }

    /// A waiter leaves without having been served.
    fn leave(&mut self, id: WaiterId, reply: Reply) {
        match self.waits.remove(id) {
            None => self.wrongs.push(format!("waiter {id} is told {reply:?}, and had left")),
            Some(waiter) => {
                self.answers.push((id, reply));
                self.queue_shortened(waiter.lock());
            }
        }
    }

    /// Whatever is due is done before a command looks.
    fn catch_up(&mut self, place: Place) {
        if std::mem::take(&mut self.locks[place].due) {
            wait::serve(self, &place);
        }
    }

    fn ring(&mut self) {
        while let Some(place) = self.locks.iter().position(|lock| lock.due) {
            self.catch_up(place);
        }
        let up = |waiter: &Waiter| waiter.until.is_some_and(|until| self.now > until);
        let first = self.waiters().find(|(_, waiter)| up(waiter));
        if let Some((id, _)) = first {
            self.leave(id, Reply::TimedOut);
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
