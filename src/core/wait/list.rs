//! All that wait.

use super::arrivals::Arrivals;
use super::{OwnerId, Policy, Queue, WaiterId, Want};
use crate::core::{give_room_back, Lock, Reservation};
use hashbrown::hash_map::{Entry, HashMap};
use hashbrown::{Equivalent, HashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

/// A place in a queue: the lock that is waited for, and what for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<L> {
    /// The lock.
    pub lock: L,
    /// The kind of hold.
    pub want: Want,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter<L, R> {
    /// Whose it is.
    pub owner: OwnerId,
    /// Where it stands: today in one queue.
    pub places: SmallVec<[Place<L>; 1]>,
    /// All else that was asked for.
    pub request: R,
}

/// What an operator can set of the waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Who goes first.
    pub policy: Policy,
    /// Whether circles of waiters are searched for.
    pub deadlock_detection: bool,
    /// How many may wait; 0: any number.
    pub max_waiters: usize,
}

/// All waiters, by their locks and by their owners.
#[derive(Debug)]
pub struct WaitList<L, R> {
    /// What an operator has set.
    pub rules: Rules,
    /// Whether circles among those that wait already are to be searched for. No circle is
    /// searched for until then: some may be served first, and wait no longer.
    pub needs_search: bool,
    queues: HashMap<L, Box<Queue>>,
    waiters: BTreeMap<WaiterId, Waiter<L, R>>,
    of_owner: HashMap<OwnerId, Arrivals<()>>,
    /// The owners that wait in several places: for several locks, or for several kinds
    /// of holds on one. Only through these can a place in a queue be part of a circle.
    in_many_places: HashSet<OwnerId>,
    /// The owners that lost one of several waiters since they were searched: the others
    /// may have stood in its place, and may wait for somebody else now.
    to_search: BTreeSet<OwnerId>,
    last: WaiterId,
}

impl<L, R> Default for WaitList<L, R> {
    fn default() -> WaitList<L, R> {
        WaitList {
            rules: Rules::default(),
            needs_search: false,
            queues: HashMap::default(),
            waiters: BTreeMap::default(),
            of_owner: HashMap::default(),
            in_many_places: HashSet::default(),
            to_search: BTreeSet::default(),
            last: 0,
        }
    }
}

impl<L: Clone + Eq + Hash, R> WaitList<L, R> {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many waiters there are.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// For how many locks they wait.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The locks that are waited for.
    pub fn locks(&self) -> impl Iterator<Item = &L> {
        self.queues.keys()
    }

    /// The lock of this name, if it is waited for.
    pub fn lock<Q: Equivalent<L> + Hash + ?Sized>(&self, lock: &Q) -> Option<L> {
        self.queues.get_key_value(lock).map(|(lock, _)| lock.clone())
    }

    /// Those that wait for a lock. There is no queue without waiters.
    pub fn queue<Q: Equivalent<L> + Hash + ?Sized>(&self, lock: &Q) -> Option<&Queue> {
        self.queues.get(lock).map(Box::as_ref)
    }

    /// The same, to change what is noted there of the lock.
    pub fn queue_mut<Q: Equivalent<L> + Hash + ?Sized>(&mut self, lock: &Q) -> Option<&mut Queue> {
        self.queues.get_mut(lock).map(Box::as_mut)
    }

    /// A waiter.
    pub fn get(&self, id: WaiterId) -> Option<&Waiter<L, R>> {
        self.waiters.get(&id)
    }

    /// The same, to change its request.
    pub fn request_mut(&mut self, id: WaiterId) -> Option<&mut R> {
        self.waiters.get_mut(&id).map(|waiter| &mut waiter.request)
    }

    /// The one that has waited longest.
    pub fn first(&self) -> Option<WaiterId> {
        self.waiters.keys().next().copied()
    }

    /// The numbers of all waiters, in the order of their arrival.
    pub fn ids(&self) -> impl Iterator<Item = WaiterId> + use<'_, L, R> {
        self.waiters.keys().copied()
    }

    /// All waiters, in the order of their arrival.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter<L, R>)> + Clone {
        self.waiters.iter().map(|(id, waiter)| (*id, waiter))
    }

    /// Those of an owner, in the order of their arrival.
    pub fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterId, &Waiter<L, R>)> {
        let ids = self.of_owner.get(owner).into_iter().flat_map(Arrivals::iter);
        ids.filter_map(|(id, ())| Some((id, self.waiters.get(&id)?)))
    }

    /// The owners that wait.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = &OwnerId> {
        self.of_owner.keys()
    }

    /// An owner's name as its waiters share it, if it has any.
    pub fn owner(&self, owner: &[u8]) -> Option<&OwnerId> {
        self.of_owner.get_key_value(owner).map(|(owner, _)| owner)
    }

    /// The owners that wait in several places.
    pub fn in_many_places(&self) -> &HashSet<OwnerId> {
        &self.in_many_places
    }

    /// Whether those that wait hold a new request up. `lock`: as its owner sees it.
    pub fn holds_up<Q: Equivalent<L> + Hash + ?Sized>(
        &self,
        name: &Q,
        lock: &Lock,
        owner: &[u8],
        want: Want,
        reservation: Reservation,
    ) -> bool {
        !self.is_empty()
            && !want.is_open_to(lock)
            && self.queue(name).is_some_and(|queue| {
                queue.holds_up(owner, want, lock.mode(), self.rules.policy, reservation)
            })
    }

    /// Whether a refused writer may leave a reservation: the owner may have one already,
    /// and those that wait came later.
    pub fn may_reserve<Q: Equivalent<L> + Hash + ?Sized>(
        &self,
        lock: &Q,
        reservation: Reservation,
    ) -> bool {
        match reservation {
            Reservation::Own => true,
            Reservation::None => self.is_empty() || self.queue(lock).is_none(),
            Reservation::Other => false,
        }
    }

    /// Adds a waiter behind all others of its kind.
    pub(in crate::core) fn add(&mut self, waiter: Waiter<L, R>) -> WaiterId {
        self.last += 1;
        let id = self.last;
        let owner = waiter.owner.clone();
        for Place { lock, want } in &waiter.places {
            self.queues.entry(lock.clone()).or_default().push(id, *want, owner.clone());
        }
        self.waiters.insert(id, waiter);
        match self.of_owner.entry(owner) {
            Entry::Vacant(new) => _ = new.insert(Arrivals::One(id, ())),
            Entry::Occupied(mut of_owner) => {
                of_owner.get_mut().insert(id, ());
                let owner = of_owner.key().clone();
                if self.waits_in_many_places(&owner) {
                    self.in_many_places.insert(owner);
                }
            }
        }
        id
    }

    /// Takes a waiter off the list and out of all its queues.
    pub fn remove(&mut self, id: WaiterId) -> Option<Waiter<L, R>> {
        let waiter = self.waiters.remove(&id)?;
        for Place { lock, want } in &waiter.places {
            if let Some(queue) = self.queues.get_mut(lock) {
                queue.remove(id, *want);
                if queue.is_empty() {
                    self.queues.remove(lock);
                    give_room_back(&mut self.queues);
                }
            }
        }
        let owner = &waiter.owner;
        if let Some(of_owner) = self.of_owner.get_mut(owner) {
            if of_owner.remove(id) == 0 {
                self.of_owner.remove(owner);
                give_room_back(&mut self.of_owner);
                self.to_search.remove(owner);
            } else {
                self.to_search.insert(owner.clone());
            }
        }
        if self.in_many_places.contains(owner) && !self.waits_in_many_places(owner) {
            self.in_many_places.remove(owner);
        }
        Some(waiter)
    }

    /// An owner that lost one of several waiters, and is searched now.
    pub(super) fn pop_to_search(&mut self) -> Option<OwnerId> {
        self.to_search.pop_first()
    }

    /// The owners that lost one of several waiters since they were searched.
    #[cfg(test)]
    pub fn to_search(&self) -> &BTreeSet<OwnerId> {
        &self.to_search
    }

    /// Makes it these.
    #[cfg(test)]
    pub fn set_to_search(&mut self, owners: BTreeSet<OwnerId>) {
        self.to_search = owners;
    }

    fn waits_in_many_places(&self, owner: &[u8]) -> bool {
        let mut places = self.of_owner(owner).flat_map(|(_, waiter)| &waiter.places);
        let first = places.next();
        places.any(|place| Some(place) != first)
    }
}

impl<L, R> Waiter<L, R> {
    /// A waiter for one lock.
    pub fn new(owner: OwnerId, lock: L, want: Want, request: R) -> Waiter<L, R> {
        Waiter { owner, places: SmallVec::from([Place { lock, want }]), request }
    }

    /// The lock that it waits for.
    pub fn lock(&self) -> &L {
        &self.places[0].lock
    }

    /// What it wants of that.
    pub fn want(&self) -> Want {
        self.places[0].want
    }
}
