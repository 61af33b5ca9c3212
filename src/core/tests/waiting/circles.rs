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

/// The waiters of one lock.
type Queue = BTreeMap<WaiterId, Here>;

/// A waiter of one lock.
#[derive(Clone, Copy)]
struct Here {
    owner: u8,
    want: Want,
    /// Whether it wants to write this lock or another.
    writes: bool,
    joint: bool,
}

/// The waits-for graph if there were only these waiters.
fn edges(world: &World, waiters: &Waiters) -> Edges {
    let mut edges = Edges::default();
    for place in 0..world.locks.len() {
        let here = waiters.iter().filter_map(|(id, waiter)| {
            let (want, writes) = (waiter.want_of(place)?, waiter.goes_as_writer());
            Some((*id, Here { owner: waiter.owner, want, writes, joint: waiter.is_joint() }))
        });
        let here: Queue = here.collect();
        let turns = turns(world, &here);
        for (id, turn) in &turns {
            let from = here[id].owner;
            if is_open(world, place, &here[id]) {
                continue;
            }
            // The first waiter of an owner in a turn lets its others in.
            let own = turns.iter().filter(|(other, its)| *its == turn && here[other].owner == from);
            let own = own.map(|(other, _)| *other);
            let writers_first = world.policy == Policy::PreferWriters;
            let first = own.min_by_key(|id| (writers_first && !here[id].writes, *id));
            let first = first.unwrap_or(*id);
            let (held_up, joins) = joins(world, place, first, &here);
            if joins {
                continue;
            }
            let is_ahead = |other: &WaiterId, its: &usize| {
                its < turn || its == turn && here[other].joint && *other < first
            };
            let ahead = turns.iter().filter(|(other, its)| is_ahead(other, its));
            let ahead = ahead.map(|(other, _)| &here[other].owner);
            let holders = world.locks[place].holds.keys().filter(|_| held_up);
            for to in holders.chain(ahead).filter(|to| **to != from) {
                edges[from as usize] |= 1 << to;
            }
        }
    }
    edges
}

/// Whether the owner of a joint waiter has this lock already, and waits for the other one only.
fn is_open(world: &World, place: Place, waiter: &Here) -> bool {
    let own = world.locks[place].holds.get(&waiter.owner);
    own.is_some_and(|own| match waiter.want {
        Want::Read => true,
        Want::Write => own.writes > 0,
        Want::Upgrade => false,
    })
}

/// Whether a waiter waits for the holders, and whether it is a reader that may join the readers
/// of its lock and so waits for no owner: no waiter ahead holds it up, and no other owner has
/// reserved the lock. A reader behind a joint reader waits for that one only.
fn joins(world: &World, place: Place, id: WaiterId, here: &Queue) -> (bool, bool) {
    let lock = &world.locks[place];
    let is_read = !lock.holds.is_empty() && lock.holds.values().all(|holds| holds.writes == 0);
    if here[&id].want != Want::Read || !is_read {
        return (true, false);
    }
    let is_reserved = lock.reserved.is_some_and(|(by, _)| by != here[&id].owner);
    let writer_ahead = |(other, waiter): (&WaiterId, &Here)| match (waiter.want, world.policy) {
        (Want::Read, _) => false,
        (Want::Write, Policy::PreferWriters) => !here[&id].writes || *other < id,
        (Want::Write, _) => *other < id,
        (Want::Upgrade, _) => true,
    };
    if world.policy == Policy::PreferReaders {
        let upgrades = here.values().any(|waiter| waiter.want == Want::Upgrade);
        return (upgrades, !upgrades);
    }
    let held_up = is_reserved || here.iter().any(writer_ahead);
    (held_up, !held_up && !here.values().any(|waiter| waiter.joint))
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
            // An edge that a later arrival has removed does not count. If it came back, it began
            // then.
            now[from] = edges & all[from];
        }
    }
    let reach = reach(now);
    (0..8).any(|from| {
        let new = now[from] & !before[from];
        (0..8).any(|to| new & 1 << to != 0 && reach[to] & 1 << from != 0)
    })
}

/// Whether each of these owners waits for the next, and the last for the first. `waiter`: it was
/// just removed.
pub fn is_one(world: &World, id: WaiterId, waiter: Waiter, owners: &[u8]) -> bool {
    let mut waiters: Waiters = world.waiters().collect();
    waiters.insert(id, waiter);
    let edges = edges(world, &waiters);
    let next = owners.iter().cycle().skip(1);
    !owners.is_empty()
        && owners.iter().zip(next).all(|(from, to)| edges[usize::from(*from)] & 1 << to != 0)
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
fn turns(world: &World, here: &Queue) -> BTreeMap<WaiterId, usize> {
    let mut rest = here.clone();
    let mut turns = BTreeMap::new();
    let mut turn = 0;
    while let Some(Here { want, owner, writes, .. }) = first(&rest, world.policy) {
        let mut group = vec![];
        let readers = || rest.iter().filter(|(_, waiter)| waiter.want == Want::Read);
        if want == Want::Read && writes && world.policy == Policy::PreferWriters {
            // It goes alone, as writers do. An owner that reads may read again.
            group.extend(readers().filter(|(_, w)| w.owner == owner).map(|(id, _)| *id));
        } else if want == Want::Read {
            let stop = rest.iter().find(|(_, waiter)| waiter.want == Want::Write);
            // Under prefer-readers a reader behind a writer may be served earlier, together
            // with a reader ahead. But that reader may leave, so it does not count.
            let end = stop.map_or(WaiterId::MAX, |(id, _)| *id);
            let head = readers().filter(|(id, _)| **id < end);
            let head: Vec<u8> = head.map(|(_, waiter)| waiter.owner).collect();
            // An owner that reads may read again, so its readers behind the writer join.
            group.extend(readers().filter(|(_, w)| head.contains(&w.owner)).map(|(id, _)| *id));
        } else {
            // An owner that writes may read and write again, so all its waiters are served.
            group.extend(rest.iter().filter(|(_, w)| w.owner == owner).map(|(id, _)| *id));
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
fn first(rest: &Queue, policy: Policy) -> Option<Here> {
    let upgrade = rest.values().find(|waiter| waiter.want == Want::Upgrade);
    let writer = rest.values().find(|waiter| waiter.writes && policy == Policy::PreferWriters);
    upgrade.or(writer).or(rest.values().next()).copied()
}
