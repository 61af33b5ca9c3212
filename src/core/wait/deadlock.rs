//! Owners that wait for each other in a circle (`docs/commands/README.md`, "Waiting").

use super::cycle::{find_cycle, Blockers, Circle};
use super::order::Lineup;
use super::{Ended, Holders, Locks, OwnerId, Place};
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A circle of waiting through an owner, which is its first.
pub fn circle_through<S: Holders>(locks: &S, owner: &OwnerId) -> Option<Circle> {
    let waits = locks.waits();
    // One owner alone waits for nobody who waits.
    let nobody = waits.owners().len() < 2 || waits.owner(owner).is_none();
    if !waits.rules.deadlock_detection || waits.needs_search || nobody {
        return None;
    }
    let mut search = Search { locks, start: owner, met: HashMap::new() };
    find_cycle(owner, |of| search.blockers(of))
}

/// Owners without whom there is no circle: inside one queue the waits lead one way only.
/// Where a circle leads back, an owner that waits holds a lock that others wait for, or
/// waits in several places.
pub fn suspects<S: Holders>(locks: &S) -> BTreeSet<OwnerId> {
    let waits = locks.waits();
    let holders = waits.locks().flat_map(|lock| locks.holding(lock).waiting);
    waits.in_many_places().iter().cloned().chain(holders).collect()
}

/// The youngest waiter of a circle is told, and waits no more. False when it is not
/// there.
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

/// Breaks the circles that new holders have closed, and owners that lost one of several
/// waiters.
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

/// A search for a circle through one owner. It looks at each lock once.
struct Search<'s, S: Holders> {
    locks: &'s S,
    start: &'s OwnerId,
    /// The locks that it has come to.
    met: HashMap<&'s S::Lock, Lineup>,
}

impl<S: Holders> Search<'_, S> {
    /// The owners that one waits for, as far as they wait themselves: a circle has no
    /// others. Those that were given before are left out.
    fn blockers(&mut self, owner: &OwnerId) -> Blockers {
        let waits = self.locks.waits();
        let policy = waits.rules.policy;
        let mut blockers = Blockers::default();
        // The first waiter for a kind of hold on a lock speaks for the others.
        let mut places = BTreeSet::new();
        let all = waits.of_owner(owner);
        for (id, place) in all.flat_map(|(id, waiter)| waiter.places.iter().map(move |p| (id, p))) {
            let Place { lock, want } = place;
            let Some(queue) = waits.queue(lock).filter(|_| places.insert(place)) else {
                continue;
            };
            let lineup = self.met.entry(lock).or_insert_with(|| {
                queue.line_up(self.locks.holding(lock), waits.in_many_places(), policy)
            });
            queue.add_blockers((id, *want), owner, self.start, lineup, policy, &mut blockers);
        }
        blockers
    }
}

#[cfg(test)]
mod tests {
    use super::super::Holding;
    use super::super::{Policy, Queue, Want};
    use super::*;

    #[test]
    fn a_search_is_told_of_each_owner_once() {
        let owners: Vec<OwnerId> = (0..1000).map(|n| format!("o{n}").into_bytes().into()).collect();
        let mut queue = Queue::default();
        for (owner, id) in owners.iter().zip((1..).step_by(2)) {
            queue.push(id, Want::Read, owner.clone());
            queue.push(id + 1, Want::Write, owner.clone());
        }
        let several = owners.iter().cloned().collect();
        let start = &owners[999];
        let mut lineup = queue.line_up(Holding::default(), &several, Policy::Fifo);
        let mut told = 0;
        let circle = find_cycle(start, |of| {
            let mut blockers = Blockers::default();
            for waiter in queue.of_owner(of) {
                let policy = Policy::Fifo;
                queue.add_blockers(waiter, of, start, &mut lineup, policy, &mut blockers);
            }
            told += blockers.len();
            blockers
        });
        assert_eq!(circle, None);
        assert_eq!(told, 999);
    }
}
