//! The search for a circle in the waits-for graph: a depth-first search.
//!
//! The nodes are owners. An edge from ann to bob says that ann waits for bob. Each edge also
//! has the waiter with whose arrival it began, called `since`. Waiters are numbered by
//! arrival, so the largest `since` in a circle names the waiter that closed it, the youngest:
//!
//! ```text
//! ann --(since 1)--> bob --(since 3)--> cat --(since 2)--> ann
//! ```
//!
//! Waiter 3 closed this circle. It gets the error, and the others go on waiting.

use super::{OwnerId, WaiterId};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// The owners that one owner waits for: its edges, each with its `since`.
#[derive(Debug, Default)]
pub struct Blockers(BTreeMap<OwnerId, WaiterId>);

impl Blockers {
    /// The number of edges.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an edge. An owner may have more than one reason to wait for another: the edge
    /// began with the oldest of them.
    pub fn add(&mut self, owner: &OwnerId, since: WaiterId) {
        let known = self.0.entry(owner.clone()).or_insert(since);
        *known = since.min(*known);
    }
}

/// Owners that wait for each other: each for the next, the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The owners, in the order of the circle.
    pub owners: Vec<OwnerId>,
    /// The waiter that closed the circle: before it arrived there was none.
    pub youngest: WaiterId,
}

impl Circle {
    /// The owners in the order of the circle, from this one on.
    pub fn starting_with(self, owner: &OwnerId) -> Vec<OwnerId> {
        let mut owners = self.owners;
        if let Some(at) = owners.iter().position(|one| one == owner) {
            owners.rotate_left(at);
        }
        owners
    }
}

/// Finds a circle through `start`, which is the first of its owners. `blockers` returns the
/// edges of an owner. It may leave out an edge to an owner that it returned earlier in this
/// search, because each owner is visited once; but never an edge to `start`.
pub fn find_cycle(
    start: &OwnerId,
    mut blockers: impl FnMut(&OwnerId) -> Blockers,
) -> Option<Circle> {
    let mut visited: HashSet<OwnerId> = HashSet::new();
    // The path from `start`, each owner with the `since` of the edge that leads to it.
    let mut path = vec![(start.clone(), 0)];
    // For each owner of the path the edges that are not yet tried.
    let mut open = vec![blockers(start).0];
    while let Some(untried) = open.last_mut() {
        match untried.pop_last() {
            None => {
                open.pop();
                path.pop();
            }
            Some((owner, since)) if owner == *start => {
                let youngest = path.iter().fold(since, |youngest, (_, since)| youngest.max(*since));
                let owners = path.into_iter().map(|(owner, _)| owner).collect();
                return Some(Circle { owners, youngest });
            }
            Some((owner, since)) => {
                if visited.insert(owner.clone()) {
                    open.push(blockers(&owner).0);
                    path.push((owner, since));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        name.as_bytes().into()
    }

    fn circle(edges: &[(&str, &str)], start: &str) -> Option<Circle> {
        find_cycle(&owner(start), |of| {
            let mut blockers = Blockers::default();
            let all = edges.iter().zip(1..);
            for ((_, to), since) in all.filter(|((from, _), _)| from.as_bytes() == of.as_ref()) {
                blockers.add(&owner(to), since);
            }
            blockers
        })
    }

    fn cycle(edges: &[(&str, &str)], start: &str) -> Option<Vec<OwnerId>> {
        circle(edges, start).map(|circle| circle.owners)
    }

    #[test]
    fn circles_of_any_length_are_found() {
        assert_eq!(cycle(&[("a", "b"), ("b", "c")], "a"), None);
        assert_eq!(cycle(&[("a", "b"), ("b", "a")], "a"), Some(vec![owner("a"), owner("b")]));
        let edges = [("a", "x"), ("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "a")];
        assert_eq!(cycle(&edges, "a").map(|cycle| cycle.len()), Some(4));
    }

    #[test]
    fn a_circle_without_start_is_not_found() {
        assert_eq!(cycle(&[("a", "b"), ("b", "c"), ("c", "b")], "a"), None);
    }

    #[test]
    fn the_youngest_waiter_is_the_one_that_closed_the_circle() {
        let edges = [("a", "b"), ("c", "a"), ("b", "c"), ("b", "x"), ("b", "c")];
        for start in ["a", "b", "c"] {
            assert_eq!(circle(&edges, start).map(|circle| circle.youngest), Some(3));
        }
    }
}
