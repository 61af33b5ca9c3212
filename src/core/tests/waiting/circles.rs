//! Who waits for whom, searched in full: every holder, and everybody whose turn comes
//! before. A reader that may join those who read waits for nobody. Whose turn comes when is
//! found by playing it through.

use super::world::{Place, Waiter, World};
use crate::core::{Policy, WaiterId, Want};
use std::collections::BTreeMap;

/// For each owner, as a set of bits, the owners that it waits for.
type Edges = [u8; 8];

/// Those that wait.
type Waiters = BTreeMap<WaiterId, Waiter>;

/// Owners wait for those who hold, and for those whose turn comes first, if
/// nobody waited but these.
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

/// Whether a waiter is a reader of a lock that is read, and nobody stands ahead who wants
/// more, nor has reserved it: it waits for nobody.
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

/// Whether owners wait for each other in a circle.
pub fn stand(world: &World) -> bool {
    let reach = reach(edges(world, &world.waiters().collect()));
    (0..8).any(|owner| reach[owner] & 1 << owner != 0)
}

/// Whether a waiter, who has just left, was the youngest of those that made a circle:
/// before it came there was none.
pub fn were_closed_by(world: &World, id: WaiterId, waiter: Waiter) -> bool {
    let mut waiters: Waiters = world.waiters().collect();
    waiters.insert(id, waiter);
    let all = edges(world, &waiters);
    let (mut before, mut now) = (Edges::default(), Edges::default());
    let mut came = Waiters::new();
    for (other, waiter) in waiters.range(..=id) {
        came.insert(*other, *waiter);
        before = now;
        for (from, edges) in edges(world, &came).into_iter().enumerate() {
            // What is no more, since later ones came, is no matter.
            now[from] |= edges & all[from];
        }
    }
    let reach = reach(now);
    (0..8).any(|from| {
        let new = now[from] & !before[from];
        (0..8).any(|to| new & 1 << to != 0 && reach[to] & 1 << from != 0)
    })
}

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

/// Whose turn comes when, if nobody comes or leaves any more and whoever has
/// the lock gives it back in the end. Those with the same turn hold together.
fn turns(world: &World, here: &Waiters) -> BTreeMap<WaiterId, usize> {
    let mut rest: BTreeMap<WaiterId, (Want, u8)> =
        here.iter().map(|(id, waiter)| (*id, (waiter.want, waiter.owner))).collect();
    let mut turns = BTreeMap::new();
    let mut turn = 0;
    while let Some((want, owner)) = first(&rest, world.policy) {
        let mut group = vec![];
        if want == Want::Read {
            let stop = rest.iter().find(|(_, (want, _))| *want == Want::Write);
            // Under prefer-readers those behind a writer may get in earlier, with
            // one that is ahead; but that one may leave.
            let end = stop.map_or(WaiterId::MAX, |(id, _)| *id);
            let readers = || rest.iter().filter(|(_, (want, _))| *want == Want::Read);
            let head: Vec<u8> = readers().filter(|(id, _)| **id < end).map(|(_, w)| w.1).collect();
            // A holder reads again, whoever waits.
            group.extend(readers().filter(|(_, w)| head.contains(&w.1)).map(|(id, _)| *id));
        } else {
            // A writer may have all that it wants.
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

fn first(rest: &BTreeMap<WaiterId, (Want, u8)>, policy: Policy) -> Option<(Want, u8)> {
    let of = |kind: Want| rest.values().find(|(want, _)| *want == kind).copied();
    let preferred = (policy == Policy::PreferWriters).then(|| of(Want::Write)).flatten();
    of(Want::Upgrade).or(preferred).or_else(|| rest.values().next().copied())
}
