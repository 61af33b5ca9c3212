//! The queue of one lock, and the order of service under each policy.

use super::arrivals::Arrivals;
use super::{Holder, Joint, OwnerId, Policy, WaiterId, Want};
use crate::core::{Lock, Mode, Reservation};
use hashbrown::{hash_map, HashMap};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// The queue of one lock: for each kind of request a line, in the order of arrival. A policy
/// chooses between the first waiters of the three lines.
///
/// [`push`](Queue::push), [`remove`](Queue::remove), [`holds_up`](Queue::holds_up) and
/// [`next`](Queue::next) take O(log n) in the length of the queue and the number of the
/// owner's waiters, [`in_order`](Queue::in_order) O(n log n).
#[derive(Debug, Default)]
pub struct Queue {
    upgrades: BTreeMap<WaiterId, OwnerId>,
    readers: BTreeMap<WaiterId, OwnerId>,
    writers: BTreeMap<WaiterId, OwnerId>,
    owners: HashMap<OwnerId, Arrivals<Want>>,
    /// The readers that wait for other locks as well. They may have to go on waiting when this
    /// lock could be granted to them, and then hold up the readers behind them.
    pub(super) joint_readers: BTreeSet<WaiterId>,
    /// Those of them that want to write another lock ([`Joint::Writes`]).
    writing_readers: BTreeSet<WaiterId>,
    /// Who may hold the lock. [`WaitList::set_holder`](super::WaitList::set_holder) changes it.
    pub(super) holder: Holder,
}

impl Queue {
    /// Adds a waiter at the end of the line for its kind.
    pub fn push(&mut self, id: WaiterId, want: Want, joint: Joint, owner: OwnerId) {
        self.line_mut(want).insert(id, owner.clone());
        if want == Want::Read && joint != Joint::No {
            self.joint_readers.insert(id);
            if joint == Joint::Writes {
                self.writing_readers.insert(id);
            }
        }
        match self.owners.entry(owner) {
            hash_map::Entry::Vacant(new) => _ = new.insert(Arrivals::One(id, want)),
            hash_map::Entry::Occupied(mut own) => own.get_mut().insert(id, want),
        }
    }

    /// Removes a waiter. False when it is not in the queue.
    pub fn remove(&mut self, id: WaiterId, want: Want) -> bool {
        let Entry::Occupied(place) = self.line_mut(want).entry(id) else {
            return false;
        };
        let owner = place.remove();
        if self.owners.get_mut(&owner).is_some_and(|own| own.remove(id) == 0) {
            self.owners.remove(&owner);
        }
        if !self.joint_readers.is_empty() {
            self.joint_readers.remove(&id);
            self.writing_readers.remove(&id);
        }
        true
    }

    /// Whether the queue has no waiter.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.upgrades.len() + self.readers.len() + self.writers.len()
    }

    /// The waiter that arrived first.
    pub fn first_arrival(&self) -> Option<WaiterId> {
        let lines = [&self.upgrades, &self.readers, &self.writers];
        lines.into_iter().filter_map(|line| line.keys().next().copied()).min()
    }

    /// The waiters of an owner, in the order of arrival.
    pub fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterId, Want)> + '_ {
        self.owners.get(owner).into_iter().flat_map(Arrivals::iter)
    }

    /// Whether it is known who may hold the lock.
    pub fn knows_holder(&self) -> bool {
        self.holder != Holder::Anybody
    }

    /// The only owner that may hold the lock, if it is known.
    pub fn only_holder(&self) -> Option<&OwnerId> {
        match &self.holder {
            Holder::Only(owner) => Some(owner),
            Holder::Anybody | Holder::Nobody => None,
        }
    }

    /// Whether no waiter can be served, because an owner that does not wait here writes. A wait to
    /// upgrade is over then: the upgrade fails.
    pub(super) fn is_kept_out(&self) -> bool {
        self.upgrades.is_empty()
            && self.only_holder().is_some_and(|writer| !self.owners.contains_key(writer))
    }

    /// All owners with a waiter in this queue.
    pub(super) fn owners(&self) -> impl ExactSizeIterator<Item = &OwnerId> {
        self.owners.keys()
    }

    /// The first other owner that waits to upgrade.
    pub fn other_upgrade(&self, owner: &[u8]) -> Option<&OwnerId> {
        self.upgrades.values().find(|other| other.as_ref() != owner)
    }

    /// Whether the waiters hold up a new request of an owner without holds. `mode`: the
    /// lock's; `reservation`: as that owner sees it.
    pub fn holds_up(
        &self,
        owner: &[u8],
        want: Want,
        joint: Joint,
        mode: Option<Mode>,
        policy: Policy,
        reservation: Reservation,
    ) -> bool {
        match want {
            Want::Upgrade => !self.upgrades.is_empty(),
            _ if !self.upgrades.is_empty() => true,
            Want::Read if joins(want, mode, policy) => false,
            // A reservation is a place ahead of the queue, for one writer.
            Want::Write if reservation == Reservation::Own => {
                self.of_owner(owner).any(|(_, want)| want == Want::Write)
            }
            Want::Read | Want::Write
                if policy.puts_writers_first()
                    && (want == Want::Write || joint == Joint::Writes) =>
            {
                !self.writers.is_empty() || !self.writing_readers.is_empty()
            }
            Want::Read | Want::Write => !self.is_empty(),
        }
    }

    /// The waiter that is served next; None: no waiter may be served now. `reserved`: the
    /// owner that has reserved the lock. Its writer goes ahead of the queue, and the other
    /// owners wait until the reservation ends. Only upgrades, and readers that join other
    /// readers under prefer-readers, do not wait for it. `passed`: readers that join begin
    /// behind this waiter, which waits for another lock; 0: with the first.
    pub fn next(
        &self,
        mode: Option<Mode>,
        policy: Policy,
        reserved: Option<&[u8]>,
        passed: WaiterId,
    ) -> Option<(WaiterId, Want, &OwnerId)> {
        if let Some(upgrade) = self.first(Want::Upgrade) {
            return Some(upgrade);
        }
        if joins(Want::Read, mode, policy) {
            let reader = self.readers.range((Excluded(passed), Unbounded)).next();
            if reader.is_some() || passed > 0 {
                return reader.map(|(&id, owner)| (id, Want::Read, owner));
            }
        }
        let head = self.head(policy);
        let Some(reserved) = reserved else {
            return head;
        };
        let (owner, own) = self.owners.get_key_value(reserved)?;
        let write = own.iter().find(|(_, want)| *want == Want::Write);
        // The owner's readers wait in the queue like all others.
        write.map(|(id, want)| (id, want, owner)).or(head.filter(|(.., first)| *first == owner))
    }

    /// Whether it is the turn of this waiter, so that no other waiter holds it up. Otherwise
    /// like [`next`](Queue::next).
    pub fn is_turn(
        &self,
        id: WaiterId,
        want: Want,
        mode: Option<Mode>,
        policy: Policy,
        reserved: Option<&[u8]>,
    ) -> bool {
        if joins(want, mode, policy) {
            return self.upgrades.is_empty();
        }
        self.next(mode, policy, reserved, 0).is_some_and(|(next, ..)| next == id)
    }

    fn first(&self, want: Want) -> Option<(WaiterId, Want, &OwnerId)> {
        self.line(want).first_key_value().map(|(&id, owner)| (id, want, owner))
    }

    /// The first waiter that wants to read or to write.
    fn head(&self, policy: Policy) -> Option<(WaiterId, Want, &OwnerId)> {
        let (reader, writer) = (self.first(Want::Read), self.first(Want::Write));
        if !policy.puts_writers_first() {
            return reader.into_iter().chain(writer).min();
        }
        let writing = self.writing_readers.first();
        let writing = writing.and_then(|id| self.readers.get_key_value(id));
        let writing = writing.map(|(&id, owner)| (id, Want::Read, owner));
        writer.into_iter().chain(writing).min().or(reader)
    }

    /// All waiters in the order of service, as if no client came or went from now on.
    /// `reserved`: the owner that has reserved the lock.
    pub fn in_order(
        &self,
        policy: Policy,
        reserved: Option<&[u8]>,
    ) -> Vec<(WaiterId, Want, OwnerId)> {
        let line =
            |want: Want| self.line(want).iter().map(move |(&id, owner)| (id, want, owner.clone()));
        let mut order: Vec<_> = line(Want::Upgrade).collect();
        let mut rest: Vec<_> = line(Want::Write).chain(line(Want::Read)).collect();
        rest.sort_by_key(|(id, want, _)| {
            let is_last = policy.puts_writers_first() && !self.goes_as_writer(*id, *want);
            (is_last, *id)
        });
        if let Some(reserved) = reserved {
            rest.sort_by_key(|(_, want, owner)| *want != Want::Write || **owner != *reserved);
        }
        order.append(&mut rest);
        order
    }

    /// The first waiters that are served before this one and hold it up, at most so many, in the
    /// order of service. Readers do not hold up a reader: they get in together.
    pub fn ahead(
        &self,
        id: WaiterId,
        want: Want,
        policy: Policy,
        limit: usize,
    ) -> Vec<(Want, OwnerId)> {
        let writers_first = policy.puts_writers_first();
        let as_writer = self.goes_as_writer(id, want);
        let before = |want: Want, all: bool| {
            let end = if all { Unbounded } else { Excluded(id) };
            let line = self.line(want).range((Unbounded, end)).take(limit + 1);
            line.filter(move |(other, _)| **other != id).map(move |(id, owner)| (*id, want, owner))
        };
        let upgrades = before(Want::Upgrade, want != Want::Upgrade);
        let mut rest: Vec<_> = Vec::new();
        if want != Want::Upgrade {
            rest.extend(before(Want::Write, writers_first && !as_writer));
            if want == Want::Write && !writers_first {
                rest.extend(before(Want::Read, false));
            }
            rest.sort_unstable_by_key(|(id, ..)| *id);
        }
        let all = upgrades.chain(rest).take(limit);
        all.map(|(_, want, owner)| (want, owner.clone())).collect()
    }

    /// Whether prefer-writers puts a waiter among the writers.
    pub(super) fn goes_as_writer(&self, id: WaiterId, want: Want) -> bool {
        want == Want::Write || self.writing_readers.contains(&id)
    }

    /// The waiters of one kind, in the order of arrival.
    pub(super) fn line(&self, want: Want) -> &BTreeMap<WaiterId, OwnerId> {
        match want {
            Want::Upgrade => &self.upgrades,
            Want::Read => &self.readers,
            Want::Write => &self.writers,
        }
    }

    fn line_mut(&mut self, want: Want) -> &mut BTreeMap<WaiterId, OwnerId> {
        match want {
            Want::Upgrade => &mut self.upgrades,
            Want::Read => &mut self.readers,
            Want::Write => &mut self.writers,
        }
    }
}

/// Whether a policy lets a request join the readers of a lock in this mode, whoever waits. Only
/// an upgrade holds it up.
pub(super) fn joins(want: Want, mode: Option<Mode>, policy: Policy) -> bool {
    want == Want::Read && mode == Some(Mode::Read) && policy.lets_readers_join()
}

impl Want {
    /// Whether the owner's own holds allow this request, so that no waiter holds it up.
    /// `lock`: the snapshot for the owner.
    pub fn is_open_to(self, lock: &Lock) -> bool {
        match self {
            Want::Read => !lock.own.is_empty(),
            Want::Write | Want::Upgrade => lock.own.writes > 0,
        }
    }
}
