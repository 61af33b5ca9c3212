//! Some locks, and clients that hold them and wait for them. The rules, the waiting and the
//! search for circles are the shipped ones. Plain values take the place of the engine's keys,
//! timers and replies.

use super::circles;
use super::rules;
use super::step::{Reply, Request, Step};
use crate::core::wait::{self, Denied, Holder, Locks, WaitList};
use crate::core::{
    decide, downgrade, lets_others_in, release, renew, reservation, End, Holds, Joint, Lock,
    Millis, Others, OwnerId, Policy, Reservation, Terms, Verdict, WaiterId, Want,
};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A lock: an index of [`World::locks`].
pub type Place = usize;
/// A client: an index of [`World::owners`].
pub type Client = usize;

/// The state of one lock.
#[derive(Default)]
pub struct LockState {
    pub holds: BTreeMap<u8, Holds>,
    pub end: Option<End>,
    pub reserved: Option<(u8, End)>,
    /// Whether its timer is about to fire, and its queue is served then.
    pub due: bool,
    /// Whether its key has another type.
    pub is_no_lock: bool,
}

/// A request, which is tried or waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub client: Client,
    pub owner: u8,
    pub place: Place,
    pub want: Want,
    /// The second lock of a joint waiter.
    pub second: Option<(Place, Want)>,
    pub once: bool,
    pub lease: Option<Millis>,
    /// When its timeout ends; None: never.
    pub until: Option<Millis>,
}

impl Waiter {
    /// What it waits for, lock by lock.
    pub fn places(&self) -> impl Iterator<Item = (Place, Want)> + Clone {
        [(self.place, self.want)].into_iter().chain(self.second)
    }

    pub fn is_joint(&self) -> bool {
        self.second.is_some()
    }

    /// What it wants of this lock.
    pub fn want_of(&self, place: Place) -> Option<Want> {
        self.places().find(|(here, _)| *here == place).map(|(_, want)| want)
    }

    /// Whether prefer-writers puts it among the writers.
    pub fn goes_as_writer(&self) -> bool {
        self.places().any(|(_, want)| want == Want::Write)
    }
}

/// All locks and clients, and the time.
pub struct World {
    pub policy: Policy,
    /// The owner that each client speaks for.
    pub owners: Vec<u8>,
    pub locks: Vec<LockState>,
    pub waits: WaitList<Place, Waiter>,
    /// The replies to waiters that wait no more.
    pub answers: Vec<(WaiterId, Reply)>,
    pub now: Millis,
    /// While a request enters the queue: whether there was a circle before it.
    pub entering: Option<bool>,
    /// How often a search for circles read a lock.
    pub searched: Cell<usize>,
    /// Whether the next attempt panics.
    pub panics: bool,
    /// Descriptions of what must not happen and did.
    pub violations: Vec<String>,
}

impl World {
    pub fn new(policy: Policy, locks: usize, owners: &[u8]) -> World {
        let mut waits = WaitList::default();
        waits.rules = wait::Rules { policy, deadlock_detection: true, max_waiters: 0 };
        World {
            policy,
            owners: owners.to_vec(),
            locks: (0..locks).map(|_| LockState::default()).collect(),
            waits,
            answers: Vec::new(),
            now: 0,
            entering: None,
            searched: Cell::new(0),
            panics: false,
            violations: Vec::new(),
        }
    }

    pub fn waits(&self, client: Client) -> Option<WaiterId> {
        self.waiters().find(|(_, waiter)| waiter.client == client).map(|(id, _)| id)
    }

    /// All waiters, in the order of their arrival.
    pub fn waiters(&self) -> impl Iterator<Item = (WaiterId, Waiter)> + Clone + '_ {
        self.waits.iter().map(|(id, waiter)| (id, waiter.request))
    }

    /// Runs one step. A client that waits cannot send a command: None.
    pub fn step(&mut self, step: Step) -> Option<Reply> {
        let sender = match step {
            Step::Acquire(Request { client, .. })
            | Step::Release { client, .. }
            | Step::Downgrade { client, .. }
            | Step::Renew { client, .. } => Some(client),
            _ => None,
        };
        if sender.is_some_and(|client| self.waits(client).is_some()) {
            return None;
        }
        match step {
            Step::Acquire(request) => Some(self.acquire(request)),
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
                if let Ok(after) = renew(&self.snapshot(place, owner), end) {
                    self.commit(place, owner, after);
                }
                Some(Reply::Held)
            }
            Step::Force(place) => {
                self.catch_up(place);
                self.locks[place].holds.clear();
                self.locks[place].reserved = None;
                self.waits.queue_changed(&place);
                self.note_holder(place);
                wait::serve(self, &place);
                None
            }
            Step::Lapse { owner, place } => {
                self.locks[place].holds.remove(&owner)?;
                self.waits.hold_ended(&place, &[owner]);
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
                self.fire_timers();
                None
            }
            Step::Leave(client) => {
                let id = self.waits(client)?;
                self.leave(id, Reply::Removed);
                None
            }
            Step::Elapse(ms) => {
                self.now += ms;
                self.lapse();
                None
            }
            Step::FireTimers => {
                self.fire_timers();
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
        let Some(after) = rule(&self.snapshot(place, owner), owner) else {
            return Some(Reply::NotHeld);
        };
        self.commit(place, owner, after);
        wait::serve(self, &place);
        Some(Reply::Held)
    }

    fn end(&self, lease: Option<Millis>) -> End {
        lease.map_or(End::Never, |ms| End::At(self.now + ms))
    }

    fn acquire(&mut self, request: Request) -> Reply {
        let Request { client, place, want, second, once, lease, block, reserve } = request;
        let owner = self.owners[client];
        request.places().for_each(|(place, _)| self.catch_up(place));
        let until = block.filter(|ms| *ms > 0).map(|ms| self.now + ms);
        let waiter = Waiter { client, owner, place, want, second, once, lease, until };
        match self.try_acquire(waiter, None) {
            Ok(true) => {
                for (place, want) in request.places() {
                    wait::serve_holder(self, &place, &name(owner));
                    if lets_others_in(want, self.policy) {
                        wait::serve(self, &place);
                    }
                }
                return Reply::Held;
            }
            Ok(false) => {}
            Err(reply) => return reply,
        }
        if rules::may_have(self, waiter, WaiterId::MAX) {
            self.violations.push(format!("{request:?} was refused, but the rules allow it"));
        }
        if block.is_some() {
            return self.wait(waiter);
        }
        let lock = self.snapshot(place, owner);
        let reservation = self.reservation(place, owner, want, &lock);
        if let Some(ms) = reserve.filter(|_| self.waits.may_reserve(&place, reservation)) {
            self.locks[place].reserved = Some((owner, End::At(self.now + ms)));
        }
        Reply::Refused
    }

    fn wait(&mut self, waiter: Waiter) -> Reply {
        let owner = waiter.owner;
        let snapshots: Vec<Lock> =
            waiter.places().map(|(place, _)| self.snapshot(place, owner)).collect();
        self.entering = Some(circles::exist(self));
        let entered = wait::enter(self, &snapshots, listed(waiter));
        self.entering = None;
        let id = match entered {
            Ok(id) => id,
            Err(rejected) => {
                let denied = rejected.why;
                // A circle of one owner is found without a search: an owner that reads
                // and asks to write would wait for itself.
                if let Denied::Deadlock(circle) = denied {
                    if circle.len() > 1 {
                        self.check_deadlock(WaiterId::MAX - 1, waiter, &circle);
                    }
                }
                return Reply::Deadlock;
            }
        };
        waiter.places().for_each(|(place, _)| self.note_holder(place));
        waiter.places().for_each(|(place, _)| wait::serve(self, &place));
        match self.answers.iter().position(|(answered, _)| *answered == id) {
            None => Reply::Waiting,
            Some(at) => self.answers.swap_remove(at).1,
        }
    }

    fn reservation(&self, place: Place, owner: u8, want: Want, lock: &Lock) -> Reservation {
        let by = self.locks[place].reserved.map(|(by, _)| [by]);
        reservation(by.as_ref().map(|by| by.as_slice()), &[owner], want, lock, self.policy)
    }

    /// Tries a request. `id`: it waits; None: it is new, and waiters can hold it up.
    pub fn try_acquire(&mut self, waiter: Waiter, id: Option<WaiterId>) -> Result<bool, Reply> {
        let Waiter { owner, once, lease, .. } = waiter;
        let terms = Terms { lease: self.end(lease), once, meant: None };
        let places: Vec<wait::Place<Place>> = listed(waiter).places.to_vec();
        let mut granted = Vec::new();
        for &wait::Place { lock: place, want } in &places {
            let lock = self.snapshot(place, owner);
            let reservation = self.reservation(place, owner, want, &lock);
            let by = self.locks[place].reserved.map(|(by, _)| [by]);
            let by = by.as_ref().map(|by| by.as_slice());
            let behind = match id {
                None => {
                    let request = (want, Joint::of(&places));
                    self.waits.holds_up(&place, &lock, &[owner], request, reservation)
                }
                Some(id) if waiter.is_joint() => {
                    self.waits.holds_up_waiter(&place, &lock, id, want, by)
                }
                Some(_) => false,
            };
            let verdict = decide(&lock, want, terms, reservation, behind);
            match verdict.map_err(|_| Reply::NotHeld)? {
                Verdict::Granted(after) => granted.push((place, want, reservation, after)),
                Verdict::Refused(_) => return Ok(false),
            }
        }
        if !rules::may_have(self, waiter, id.unwrap_or(WaiterId::MAX)) {
            self.violations.push(format!("{waiter:?} was granted, but the rules do not allow it"));
        }
        for (place, want, reservation, after) in granted {
            self.commit(place, owner, after);
            if want != Want::Read && reservation == Reservation::Own {
                self.locks[place].reserved = None;
            }
        }
        Ok(true)
    }

    /// Checks that a waiter that got a deadlock error has closed a circle, and that these owners
    /// are one. An upgrade can also close a circle of others: readers that could join wait then.
    pub fn check_deadlock(&mut self, id: WaiterId, waiter: Waiter, circle: &[OwnerId]) {
        let owners: Vec<u8> = circle.iter().map(|owner| owner[0]).collect();
        let begins_with_it = owners.iter().position(|owner| *owner == waiter.owner) <= Some(0);
        if !begins_with_it || !circles::is_one(self, id, waiter, &owners) {
            self.violations.push(format!("waiter {id} gets the circle {owners:?}, which is none"));
        }
        if !circles::were_closed_by(self, id, waiter) {
            self.violations
                .push(format!("waiter {id} gets a deadlock error, but closes no circle"));
        }
    }

    /// Removes a waiter that was not granted its request.
    pub fn leave(&mut self, id: WaiterId, reply: Reply) {
        match self.waits.remove(id) {
            None => self.violations.push(format!("waiter {id} gets {reply:?}, but does not wait")),
            Some(waiter) => {
                self.answers.push((id, reply));
                waiter.places.iter().for_each(|place| self.queue_shortened(&place.lock));
            }
        }
    }

    /// Serves the queue if that is due. The engine does the same before each command.
    fn catch_up(&mut self, place: Place) {
        if std::mem::take(&mut self.locks[place].due) {
            self.note_holder(place);
            wait::serve(self, &place);
        }
    }

    fn fire_timers(&mut self) {
        while let Some(place) = self.locks.iter().position(|lock| lock.due) {
            self.catch_up(place);
        }
        let is_over = |waiter: &Waiter| waiter.until.is_some_and(|until| self.now > until);
        let first = self.waiters().find(|(_, waiter)| is_over(waiter));
        if let Some((id, _)) = first {
            self.leave(id, Reply::TimedOut);
            self.fire_timers();
        }
    }

    /// Removes lapsed holds and reservations, and notes which locks are due because of it.
    fn lapse(&mut self) {
        let now = self.now;
        for (place, lock) in self.locks.iter_mut().enumerate() {
            let over = lock.end.is_some_and(|end| end.is_past(now));
            let count = |lock: &LockState| -> u64 {
                lock.holds.values().map(|holds| holds.reads.len() as u64 + holds.writes).sum()
            };
            let before = (count(lock), lock.reserved);
            for holds in lock.holds.values_mut() {
                holds.reads.retain(|end| !over && !end.is_past(now));
                holds.writes = if over { 0 } else { holds.writes };
            }
            for (owner, _) in lock.holds.iter().filter(|(_, holds)| holds.is_empty()) {
                self.waits.hold_ended(&place, &[*owner]);
            }
            lock.holds.retain(|_, holds| !holds.is_empty());
            lock.reserved = lock.reserved.filter(|(_, end)| !end.is_past(now));
            lock.due |= before != (count(lock), lock.reserved);
        }
    }

    fn commit(&mut self, place: Place, owner: u8, after: Lock) {
        let lock = &mut self.locks[place];
        lock.end = Some(after.end);
        let writes = |own: Option<&Holds>| own.is_some_and(|own| own.writes > 0);
        if after.own.is_empty() || writes(lock.holds.get(&owner)) && after.own.writes == 0 {
            self.waits.hold_ended(&place, &[owner]);
        }
        if after.own.is_empty() {
            lock.holds.remove(&owner);
        } else {
            lock.holds.insert(owner, after.own);
        }
        self.note_holder(place);
    }

    /// Notes who may hold a lock, as the engine does after a commit.
    fn note_holder(&mut self, place: Place) {
        let holder = match *self.locks[place].holds.iter().collect::<Vec<_>>() {
            [] => Holder::Nobody,
            [(owner, holds)] if holds.writes > 0 => Holder::Only(name(*owner)),
            _ => Holder::Anybody,
        };
        self.waits.set_holder(&place, holder);
    }

    /// The snapshot of a lock for an owner.
    pub fn snapshot(&self, place: Place, owner: u8) -> Lock {
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

/// A waiter, as the wait list has it.
pub fn listed(waiter: Waiter) -> wait::Waiter<Place, Waiter> {
    let places = waiter.places().map(|(lock, want)| wait::Place { lock, want }).collect();
    wait::Waiter { owner: name(waiter.owner), places, request: waiter }
}

/// The name of an owner, from its number.
pub fn name(owner: u8) -> OwnerId {
    OwnerId::from([owner].as_slice())
}
