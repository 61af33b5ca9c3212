//! The waits-for graph in full, to compare with the search in `core::wait`, which leaves many
//! edges out. An owner waits for every holder, and for every owner with an earlier turn. A
//! reader that may join the readers of its lock waits for no owner. The turns are found by
//! playing the service of the queue through.

use super::world::{Place, Waiter, World};
use crate::core::{Policy, WaiterId, Want};
use std::collections::BTreeMap;

/// For each owner the owners that it waits for, as a set of bits.
type Edges = [u8; 8];

/// All waiters.
type Waiters = BTreeMap<WaiterId, Waiter>;

/// The waits-for graph if there were only these waiters.
fn edges(world: &World, waiters: &Waiters) -> Edges {
    let mut edges = Edges::default();
    for place in 0..world.locks.len() {
        let here = waiters.iter().filter(|(_, waiter)| waiter.place == place);
        let here: Waiters = here.map(|(id, waiter)| (*id, *waiter)).collect();
        let turns = turns(world, &here);
        for (id, turn) in &turns {
            let from = here[id].owner;
            let ahead = turns.iter().filter(|(_, other)| *other < turn);
            let ahead = ahead.map(|(other, _)| &here[other].owner);
            if joins(world, place, *id, &here) {
                continue;
            }
            for to in world.locks[place].holds.keys().chain(ahead).filter(|to| **to != from) {
                edges[from as usize] |= 1 << to;
            }
        }
    }
    edges
}

/// Whether a waiter is a reader that may join the readers of its lock: no waiter ahead wants
/// more than to read, and no other owner has reserved the lock. It waits for no owner.
fn joins(world: &World, place: Place, id: WaiterId, here: &Waiters) -> bool {
    let lock = &world.locks[place];
    let is_read = !lock.holds.is_empty() && lock.holds.values().all(|holds| holds.writes == 0);
    let is_reserved = world.policy != Policy::PreferReaders
        && lock.reserved.is_some_and(|(by, _)| by != here[&id].owner);
    let holds_up = |(other, waiter): (&WaiterId, &Waiter)| match (waiter.want, world.policy) {
        (Want::Read, _) | (Want::Write, Policy::PreferReaders) => false,
        (Want::Write, Policy::Fifo) => *other < id,
        (Want::Write, Policy::PreferWriters) | (Want::Upgrade, _) => true,
    };
    here[&id].want == Want::Read && is_read && !is_reserved && !here.iter().any(holds_up)
}

/// Whether there is a circle of owners that wait for each other.
pub fn exist(world: &World) -> bool {
    let reach = reach(edges(world, &world.waiters().collect()));
    (0..8).any(|owner| reach[owner] & 1 << owner != 0)
}

/// Whether a waiter that was just removed had closed a circle: there was none before it
/// arrived.
pub fn were_closed_by(world: &World, id: WaiterId, waiter: Waiter) -> bool {
    let mut waiters: Waiters = world.waiters().collect();
    waiters.insert(id, waiter);
    let all = edges(world, &waiters);
    let (mut before, mut now) = (Edges::default(), Edges::default());
    let mut arrived = Waiters::new();
    for (other, waiter) in waiters.range(..=id) {
        arrived.insert(*other, *waiter);
        before = now;
        for (from, edges) in edges(world, &arrived).into_iter().enumerate() {
            // An edge that a later arrival has removed does not count.
            now[from] |= edges & all[from];
        }
    }
    let reach = reach(now);
    (0..8).any(|from| {
        let new = now[from] & !before[from];
        (0..8).any(|to| new & 1 << to != 0 && reach[to] & 1 << from != 0)
    })
}

/// For each owner all owners that a path of edges leads to.
fn reach(mut reach: Edges) -> Edges {
    for via in 0..8 {
        for from in 0..8 {
            if reach[from] & 1 << via != 0 {
                reach[from] |= reach[via];
            }
        }
    }
    reach
}

/// The turns of the waiters of one lock, if no client comes or leaves from now on, and each
/// holder gives the lock back in the end. Waiters with the same turn hold the lock together.
fn turns(world: &World, here: &Waiters) -> BTreeMap<WaiterId, usize> {
    let mut rest: BTreeMap<WaiterId, (Want, u8)> =
        here.iter().map(|(id, waiter)| (*id, (waiter.want, waiter.owner))).collect();
    let mut turns = BTreeMap::new();
    let mut turn = 0;
    while let Some((want, owner)) = first(&rest, world.policy) {
        let mut group = vec![];
        if want == Want::Read {
            let stop = rest.iter().find(|(_, (want, _))| *want == Want::Write);
            // Under prefer-readers a reader behind a writer may be served earlier, together
            // with a reader ahead. But that reader may leave, so it does not count.
            let end = stop.map_or(WaiterId::MAX, |(id, _)| *id);
            let readers = || rest.iter().filter(|(_, (want, _))| *want == Want::Read);
            let head: Vec<u8> = readers().filter(|(id, _)| **id < end).map(|(_, w)| w.1).collect();
            // An owner that reads may read again, so its readers behind the writer join.
            group.extend(readers().filter(|(_, w)| head.contains(&w.1)).map(|(id, _)| *id));
        } else {
            // An owner that writes may read and write again, so all its waiters are served.
            group.extend(rest.iter().filter(|(_, w)| w.1 == owner).map(|(id, _)| *id));
        }
        for id in group {
            rest.remove(&id);
            turns.insert(id, turn);
        }
        turn += 1;
    }
    turns
}

/// The waiter that is served next.
fn first(rest: &BTreeMap<WaiterId, (Want, u8)>, policy: Policy) -> Option<(Want, u8)> {
    let of = |kind: Want| rest.values().find(|(want, _)| *want == kind).copied();
    let preferred = (policy == Policy::PreferWriters).then(|| of(Want::Write)).flatten();
    of(Want::Upgrade).or(preferred).or_else(|| rest.values().next().copied())
}
