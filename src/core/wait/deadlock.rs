//! Deadlocks: owners that wait for each other in a circle (`docs/commands/README.md`,
//! "Deadlock").
//!
//! An owner waits for the holders of the lock and for the owners ahead in its queue.
//! `order.rs` finds these edges for one lock, `cycle.rs` searches the graph. New edges can
//! close a circle, so a search through an owner runs when
//!
//! - the owner begins to wait (`enter.rs`);
//! - a grant makes the owner a holder (`serve.rs`): others may now wait for it;
//! - one of the owner's waiters is removed: its other waiters may have a later turn now;
//! - a setting changes: then through each of the [`suspects`].
//!
//! A circle is broken by an error to its youngest waiter.

use super::cycle::{find_cycle, Blockers, Circle};
use super::order::Lineup;
use super::{Ended, Holders, Locks, OwnerId, Place};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A circle of waiting owners through `owner`, which is the first in it. None also while
/// the search is off, or while [`needs_search`](super::WaitList::needs_search) delays it.
pub fn circle_through<S: Holders>(locks: &S, owner: &OwnerId) -> Option<Circle> {
    let waits = locks.waits();
    let is_alone = waits.owners().len() < 2 || waits.owner(owner).is_none();
    if !waits.rules.deadlock_detection || waits.needs_search || is_alone {
        return None;
    }
    let mut search = Search { locks, start: owner, lineups: HashMap::new() };
    find_cycle(owner, |of| search.blockers(of))
}

/// Owners of which every circle has at least one. Inside one queue a wait only leads to an
/// earlier turn or to a holder. So a circle needs an owner that leads back to a later turn:
/// a holder that waits, or an owner that waits in more than one place.
pub fn suspects<S: Holders>(locks: &S) -> BTreeSet<OwnerId> {
    let waits = locks.waits();
    let holders = waits.locks().flat_map(|lock| locks.holding(lock).waiting);
    waits.in_many_places().iter().cloned().chain(holders).collect()
}

/// Ends the wait of the circle's youngest waiter with [`Ended::Deadlock`]. False when that
/// waiter is not on the list.
pub fn break_circle<S: Locks>(locks: &mut S, circle: Circle) -> bool {
    let Some(waiter) = locks.waits_mut().remove(circle.youngest) else {
        return false;
    };
    let places = waiter.places.clone();
    let id = circle.youngest;
    let owners = circle.starting_with(&waiter.owner);
    locks.ended(id, waiter, Ended::Deadlock(owners));
    places.iter().for_each(|place| locks.queue_shortened(&place.lock));
    true
}

/// Breaks all circles through new `holders`, and through owners that lost one of their
/// waiters since the last search.
pub(super) fn break_circles<S: Locks>(locks: &mut S, holders: impl IntoIterator<Item = OwnerId>) {
    for owner in holders {
        break_circles_through(locks, &owner);
    }
    while let Some(owner) = locks.waits_mut().pop_to_search() {
        break_circles_through(locks, &owner);
    }
}

fn break_circles_through<S: Locks>(locks: &mut S, owner: &OwnerId) {
    while let Some(circle) = circle_through(locks, owner) {
        if !break_circle(locks, circle) {
            return;
        }
    }
}

/// A search for a circle through the owner `start`. It reads each lock once.
struct Search<'s, S: Holders> {
    locks: &'s S,
    start: &'s OwnerId,
    /// The locks that the search has reached.
    lineups: HashMap<&'s S::Lock, Lineup>,
}

impl<S: Holders> Search<'_, S> {
    /// The owners that `owner` waits for. Only owners that wait themselves can be part of
    /// a circle, so the others are left out; so are owners that this search has returned
    /// before.
    fn blockers(&mut self, owner: &OwnerId) -> Blockers {
        let waits = self.locks.waits();
        let policy = waits.rules.policy;
        let mut blockers = Blockers::default();
        // An owner's later waiters in the same place share the turn of the first one, so they
        // add no edge.
        let mut places = BTreeSet::new();
        let all = waits.of_owner(owner);
        for (id, place) in all.flat_map(|(id, waiter)| waiter.places.iter().map(move |p| (id, p))) {
            let Place { lock, want } = place;
            let Some(queue) = waits.queue(lock).filter(|_| places.insert(place)) else {
                continue;
            };
            let lineup = self.lineups.entry(lock).or_insert_with(|| {
                let many = (!waits.has_joint()).then(|| waits.in_many_places());
                queue.line_up(self.locks.holding(lock), many, policy)
            });
            queue.add_blockers((id, *want), owner, self.start, lineup, policy, &mut blockers);
        }
        blockers
    }
}

#[cfg(test)]
mod tests {
    use super::super::Holding;
    use super::super::{Joint, Policy, Queue, Want};
    use super::*;

    #[test]
    fn a_search_gets_each_owner_once() {
        let owners: Vec<OwnerId> = (0..1000).map(|n| format!("o{n}").into_bytes().into()).collect();
        let mut queue = Queue::default();
        for (owner, id) in owners.iter().zip((1..).step_by(2)) {
            queue.push(id, Want::Read, Joint::No, owner.clone());
            queue.push(id + 1, Want::Write, Joint::No, owner.clone());
        }
        let in_many_places = owners.iter().cloned().collect();
        let start = &owners[999];
        let mut lineup = queue.line_up(Holding::default(), Some(&in_many_places), Policy::Fifo);
        let mut edges = 0;
        let circle = find_cycle(start, |of| {
            let mut blockers = Blockers::default();
            for waiter in queue.of_owner(of) {
                let policy = Policy::Fifo;
                queue.add_blockers(waiter, of, start, &mut lineup, policy, &mut blockers);
            }
            edges += blockers.len();
            blockers
        });
        assert_eq!(circle, None);
        assert_eq!(edges, 999);
    }
}
