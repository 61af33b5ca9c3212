//! The list of all waiters.

use super::arrivals::Arrivals;
use super::holder::HeldBy;
use super::{Holder, Joint, OwnerId, Place, Policy, Queue, WaiterId, Want};
use crate::core::{give_room_back, Lock, Reservation};
use hashbrown::hash_map::{Entry, HashMap};
use hashbrown::{Equivalent, HashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter<L, R> {
    /// The owner that the client speaks for.
    pub owner: OwnerId,
    /// The waiter's places: one, or more for a joint waiter ([`Joint`]). No lock is in it twice.
    pub places: SmallVec<[Place<L>; 1]>,
    /// The rest of the request, for the implementor of [`Locks`](super::Locks).
    pub request: R,
}

/// The settings of an operator that concern waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The order of service.
    pub policy: Policy,
    /// Whether circles of waiting owners are searched for.
    pub deadlock_detection: bool,
    /// How many waiters there may be, over all locks; 0: any number.
    pub max_waiters: usize,
}

/// All waiters, by their locks and by their owners.
#[derive(Debug)]
pub struct WaitList<L, R> {
    /// The settings of an operator.
    pub rules: Rules,
    /// Whether the waiters that are here already have to be searched for circles, because a
    /// setting changed. The engine does so after it has served the queues, since a grant can
    /// dissolve a circle. Until it resets this field, no other search runs.
    pub needs_search: bool,
    queues: HashMap<L, Box<Queue>>,
    /// The locks of these queues, by who may hold them.
    held_by: HeldBy<L>,
    waiters: BTreeMap<WaiterId, Waiter<L, R>>,
    of_owner: HashMap<OwnerId, Arrivals<()>>,
    /// The owners that wait in more than one place: for more than one lock, or for more than
    /// one kind of hold on a lock. A circle that leads back to a later turn in a queue does so
    /// through such an owner or through a holder.
    in_many_places: HashSet<OwnerId>,
    /// The owners that may wait for more owners than at the last search through them. Most
    /// lost one of their waiters and keep others, which may have had its turn.
    to_search: BTreeSet<OwnerId>,
    /// How many joint waiters there are.
    joint: usize,
    /// The number of the latest waiter; 0: there was none yet.
    last_id: WaiterId,
}

impl<L, R> Default for WaitList<L, R> {
    fn default() -> WaitList<L, R> {
        WaitList {
            rules: Rules::default(),
            needs_search: false,
            queues: HashMap::default(),
            held_by: HeldBy::default(),
            waiters: BTreeMap::default(),
            of_owner: HashMap::default(),
            in_many_places: HashSet::default(),
            to_search: BTreeSet::default(),
            joint: 0,
            last_id: 0,
        }
    }
}

impl<L: Clone + Eq + Hash, R> WaitList<L, R> {
    /// Whether there is no waiter.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number of waiters, over all locks.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The number of locks that have waiters.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The locks that have waiters.
    pub fn locks(&self) -> impl Iterator<Item = &L> {
        self.queues.keys()
    }

    /// The lock of this name, if it has waiters.
    pub fn lock<Q: Equivalent<L> + Hash + ?Sized>(&self, lock: &Q) -> Option<L> {
        self.queues.get_key_value(lock).map(|(lock, _)| lock.clone())
    }

    /// The queue of a lock; None: the lock has no waiters.
    pub fn queue<Q: Equivalent<L> + Hash + ?Sized>(&self, lock: &Q) -> Option<&Queue> {
        self.queues.get(lock).map(Box::as_ref)
    }

    /// Notes who may hold a lock, if it has waiters. Needed after each commit, and before the lock's
    /// queue is served after a lapse. After an external change it is [`Holder::Anybody`]. While
    /// another owner is known to write, waiters are not tried.
    pub fn set_holder<Q: Equivalent<L> + Hash + ?Sized>(&mut self, lock: &Q, holder: Holder) {
        if let Some((lock, queue)) = self.queues.get_key_value_mut(lock) {
            if queue.holder != holder {
                self.held_by.remove(lock, &queue.holder);
                self.held_by.add(lock, &holder);
                queue.holder = holder;
            }
        }
    }

    /// Whether an owner may hold a lock that has waiters. `holds`: whether it holds this lock,
    /// of which nothing is known.
    pub(super) fn may_be_waited_for(&self, owner: &OwnerId, holds: impl FnMut(&L) -> bool) -> bool {
        self.held_by.may_hold(owner, holds)
    }

    /// The waiter of this number, if it still waits.
    pub fn get(&self, id: WaiterId) -> Option<&Waiter<L, R>> {
        self.waiters.get(&id)
    }

    /// The request of a waiter, to be changed.
    pub fn request_mut(&mut self, id: WaiterId) -> Option<&mut R> {
        self.waiters.get_mut(&id).map(|waiter| &mut waiter.request)
    }

    /// The waiter that arrived first.
    pub fn first(&self) -> Option<WaiterId> {
        self.waiters.keys().next().copied()
    }

    /// The numbers of all waiters, in the order of their arrival.
    pub fn ids(&self) -> impl Iterator<Item = WaiterId> + use<'_, L, R> {
        self.waiters.keys().copied()
    }

    /// All waiters, in the order of their arrival.
    #[cfg(any(test, fuzzing))]
    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter<L, R>)> + Clone {
        self.waiters.iter().map(|(id, waiter)| (*id, waiter))
    }

    /// The waiters of an owner, in the order of their arrival.
    pub fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterId, &Waiter<L, R>)> {
        let ids = self.of_owner.get(owner).into_iter().flat_map(Arrivals::iter);
        ids.filter_map(|(id, ())| Some((id, self.waiters.get(&id)?)))
    }

    /// The owners that have waiters.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = &OwnerId> {
        self.of_owner.keys()
    }

    /// The shared copy of this owner's name; None: the owner has no waiters.
    pub fn owner(&self, owner: &[u8]) -> Option<&OwnerId> {
        self.of_owner.get_key_value(owner).map(|(owner, _)| owner)
    }

    /// The owners that wait in more than one place: for more than one lock, or for more than
    /// one kind of hold on a lock.
    pub fn in_many_places(&self) -> &HashSet<OwnerId> {
        &self.in_many_places
    }

    /// Whether there are joint waiters.
    pub fn has_joint(&self) -> bool {
        self.joint > 0
    }

    /// Whether waiters of the lock `name` hold up a new request. `lock`: the snapshot for
    /// its owner.
    pub fn holds_up<Q: Equivalent<L> + Hash + ?Sized>(
        &self,
        name: &Q,
        lock: &Lock,
        owner: &[u8],
        (want, joint): (Want, Joint),
        reservation: Reservation,
    ) -> bool {
        !self.is_empty()
            && !want.is_open_to(lock)
            && self.queue(name).is_some_and(|queue| {
                queue.holds_up(owner, want, joint, lock.mode(), self.rules.policy, reservation)
            })
    }

    /// Whether other waiters of the lock `name` hold up the waiter `id`, which waits for it.
    /// `lock`: the snapshot for its owner. `reserved`: the owner that has reserved the lock.
    pub fn holds_up_waiter<Q: Equivalent<L> + Hash + ?Sized>(
        &self,
        name: &Q,
        lock: &Lock,
        id: WaiterId,
        want: Want,
        reserved: Option<&[u8]>,
    ) -> bool {
        !want.is_open_to(lock)
            && self.queue(name).is_some_and(|queue| {
                !queue.is_turn(id, want, lock.mode(), self.rules.policy, reserved)
            })
    }

    /// Notes that an owner has no hold, or no write hold, on a lock any more. While it had one,
    /// a place of its joint waiter in this queue may have been open to it, and waited for nobody.
    pub fn hold_ended<Q: Equivalent<L> + Hash + ?Sized>(&mut self, name: &Q, owner: &[u8]) {
        if self.joint > 0 {
            let waits =
                self.queue(name).is_some_and(|queue| queue.of_owner(owner).next().is_some());
            let owner = self.owner(owner).filter(|_| waits).cloned();
            self.to_search.extend(owner);
        }
    }

    /// Notes that owners may wait for more owners of this queue than before: all that wait in
    /// more than one place.
    pub fn queue_changed<Q: Equivalent<L> + Hash + ?Sized>(&mut self, name: &Q) {
        if self.joint > 0 {
            let queue = self.queues.get(name);
            let owners = queue.into_iter().flat_map(|queue| queue.owners());
            let many = owners.filter(|owner| self.in_many_places.contains(*owner));
            self.to_search.extend(many.cloned());
        }
    }

    /// Whether a refused writer may reserve the lock. It may when the lock has no waiters,
    /// because a reservation goes ahead of them. It also may when its owner has the
    /// reservation already: that is ahead of the waiters in any case.
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

    /// Adds a waiter at the end of the lines for its places.
    pub(in crate::core) fn add(&mut self, waiter: Waiter<L, R>) -> WaiterId {
        self.last_id += 1;
        let id = self.last_id;
        let owner = waiter.owner.clone();
        let joint = Joint::of(&waiter.places);
        for Place { lock, want } in &waiter.places {
            let queue = self.queues.entry(lock.clone()).or_insert_with(|| {
                self.held_by.add(lock, &Holder::Anybody);
                Box::default()
            });
            queue.push(id, *want, joint, owner.clone());
        }
        self.waiters.insert(id, waiter);
        if joint != Joint::No {
            self.joint += 1;
            self.in_many_places.insert(owner.clone());
        }
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

    /// Removes a waiter from the list and from all its queues.
    pub fn remove(&mut self, id: WaiterId) -> Option<Waiter<L, R>> {
        let waiter = self.waiters.remove(&id)?;
        self.joint -= usize::from(waiter.is_joint());
        for Place { lock, want } in &waiter.places {
            if let Some(queue) = self.queues.get_mut(lock) {
                queue.remove(id, *want);
                if queue.is_empty() {
                    self.held_by.remove(lock, &queue.holder);
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
                // Its other waiters in these queues have a later turn now, and stand between
                // waiters that they did not separate before.
                for place in &waiter.places {
                    self.queue_changed(&place.lock);
                }
            }
        }
        if self.in_many_places.contains(owner) && !self.waits_in_many_places(owner) {
            self.in_many_places.remove(owner);
        }
        Some(waiter)
    }

    /// The next owner that lost one of its waiters. The caller searches through it.
    pub(super) fn pop_to_search(&mut self) -> Option<OwnerId> {
        self.to_search.pop_first()
    }

    /// The owners that [`pop_to_search`](WaitList::pop_to_search) will return.
    #[cfg(test)]
    pub fn to_search(&self) -> &BTreeSet<OwnerId> {
        &self.to_search
    }

    /// Replaces the owners that [`pop_to_search`](WaitList::pop_to_search) will return.
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
    /// Whether it waits for several locks at once.
    pub fn is_joint(&self) -> bool {
        self.places.len() > 1
    }
}
