//! Who waits for whom, searched in full: every holder, and everybody whose turn
//! comes before. Whose turn comes when is found by playing it through.

use super::world::{Place, World};
use crate::core::{Policy, WaiterId, Want};
use std::collections::BTreeMap;

/// That one owner waits for another.
struct Edge {
    from: u8,
    to: u8,
    /// The waiters without which it would not.
    by: [WaiterId; 2],
}

/// All of it.
pub struct Graph(Vec<Edge>);

/// The graph over all who wait now.
pub fn of(world: &World) -> Graph {
    let mut edges = Vec::new();
    for place in 0..world.locks.len() {
        let turns = turns(world, place);
        for (id, waiter) in world.waiters.iter().filter(|(_, w)| w.place == place) {
            let from = waiter.owner;
            for holder in world.locks[place].holds.keys() {
                edges.push(Edge { from, to: *holder, by: [*id; 2] });
            }
            for (other, _) in turns.iter().filter(|(_, turn)| **turn < turns[id]) {
                edges.push(Edge { from, to: world.waiters[other].owner, by: [*id, *other] });
            }
        }
    }
    edges.retain(|edge| edge.from != edge.to);
    Graph(edges)
}

impl Graph {
    /// Whether owners wait for each other in a circle.
    pub fn exists(&self) -> bool {
        let reach = reach(self.0.iter());
        (0..8).any(|owner| reach[owner] & 1 << owner != 0)
    }

    /// Whether this waiter is the youngest of those that make a circle.
    pub fn is_closed_by(&self, id: WaiterId) -> bool {
        let older = || self.0.iter().filter(|edge| edge.by.iter().all(|by| *by <= id));
        let reach = reach(older());
        older().any(|edge| edge.by.contains(&id) && reach[edge.to as usize] & 1 << edge.from != 0)
    }
}

fn reach<'a>(edges: impl Iterator<Item = &'a Edge>) -> [u8; 8] {
    let mut reach = [0u8; 8];
    for edge in edges {
        reach[edge.from as usize] |= 1 << edge.to;
    }
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
fn turns(world: &World, place: Place) -> BTreeMap<WaiterId, usize> {
    let here = world.waiters.iter().filter(|(_, waiter)| waiter.place == place);
    let mut rest: BTreeMap<WaiterId, (Want, u8)> =
        here.map(|(id, waiter)| (*id, (waiter.want, waiter.owner))).collect();
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
