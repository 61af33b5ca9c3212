//! The queue of one lock, and the order of service under each policy.

use super::arrivals::Arrivals;
use super::{OwnerId, Policy, WaiterId, Want};
use crate::core::{Lock, Mode, Reservation};
use hashbrown::{hash_map, HashMap};
use std::collections::btree_map::{BTreeMap, Entry};

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
    /// The owner that holds the lock to write. It is a hint: an external change can make it
    /// wrong, so check it against the keys.
    pub writer: Option<OwnerId>,
}

impl Queue {
    /// Adds a waiter at the end of the line for its kind.
    pub fn push(&mut self, id: WaiterId, want: Want, owner: OwnerId) {
        self.line_mut(want).insert(id, owner.clone());
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
        mode: Option<Mode>,
        policy: Policy,
        reservation: Reservation,
    ) -> bool {
        match want {
            Want::Upgrade => !self.upgrades.is_empty(),
            _ if !self.upgrades.is_empty() => true,
            Want::Read if policy.lets_readers_join() && mode == Some(Mode::Read) => false,
            // A reservation is a place ahead of the queue, for one writer.
            Want::Write if reservation == Reservation::Own => {
                self.of_owner(owner).any(|(_, want)| want == Want::Write)
            }
            Want::Write if policy.puts_writers_first() => !self.writers.is_empty(),
            Want::Read | Want::Write => !self.is_empty(),
        }
    }

    /// The waiter that is served next; None: no waiter may be served now. `reserved`: the
    /// owner that has reserved the lock. Its writer goes ahead of the queue, and the other
    /// owners wait until the reservation ends. Only upgrades, and readers that join other
    /// readers under prefer-readers, do not wait for it.
    pub fn next(
        &self,
        mode: Option<Mode>,
        policy: Policy,
        reserved: Option<&[u8]>,
    ) -> Option<(WaiterId, Want, &OwnerId)> {
        let first = |want: Want| self.line(want).first_key_value().map(|(&id, o)| (id, want, o));
        if let Some(upgrade) = first(Want::Upgrade) {
            return Some(upgrade);
        }
        if policy.lets_readers_join() && mode == Some(Mode::Read) {
            if let Some(reader) = first(Want::Read) {
                return Some(reader);
            }
        }
        let (reader, writer) = (first(Want::Read), first(Want::Write));
        let head = match (reader, writer) {
            (Some(reader), Some(writer)) if !policy.puts_writers_first() => {
                Some(reader.min(writer))
            }
            (reader, writer) => writer.or(reader),
        };
        let Some(reserved) = reserved else {
            return head;
        };
        let (owner, own) = self.owners.get_key_value(reserved)?;
        let write = own.iter().find(|(_, want)| *want == Want::Write);
        // The owner's readers wait in the queue like all others.
        write.map(|(id, want)| (id, want, owner)).or(head.filter(|(.., first)| *first == owner))
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
        if !policy.puts_writers_first() {
            rest.sort_by_key(|(id, _, _)| *id);
        }
        if let Some(reserved) = reserved {
            rest.sort_by_key(|(_, want, owner)| *want != Want::Write || **owner != *reserved);
        }
        order.append(&mut rest);
        order
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
