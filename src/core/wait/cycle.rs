//! A search for a circle in a graph of owners.

use super::{OwnerId, WaiterId};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// The owners that one waits for, each with the waiter that came last of those
/// without which it would not.
#[derive(Debug, Default)]
pub struct Blockers(BTreeMap<OwnerId, WaiterId>);

impl Blockers {
    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one. Of several reasons to wait for it the oldest counts.
    pub fn add(&mut self, owner: &OwnerId, since: WaiterId) {
        let known = self.0.entry(owner.clone()).or_insert(since);
        *known = since.min(*known);
    }
}

/// Owners that wait for each other, each for the next, the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The owners.
    pub owners: Vec<OwnerId>,
    /// The waiter that came last of those without which there was no circle.
    pub youngest: WaiterId,
}

impl Circle {
    /// The owners, beginning with this one.
    pub fn starting_with(self, owner: &OwnerId) -> Vec<OwnerId> {
        let mut owners = self.owners;
        if let Some(at) = owners.iter().position(|one| one == owner) {
            owners.rotate_left(at);
        }
        owners
    }
}

/// Finds a circle through `start`, which is its first. `blockers` gives the
/// owners that one waits for: every other owner that holds the
/// lock, or that stands ahead in its queue and makes it wait. It may leave out
/// those that it has given before in this search, but never `start`.
pub fn find_cycle(
    start: &OwnerId,
    mut blockers: impl FnMut(&OwnerId) -> Blockers,
) -> Option<Circle> {
    let mut visited: HashSet<OwnerId> = HashSet::new();
    // A path, and beside each of its owners those that are still to be tried.
    let mut path = vec![(start.clone(), 0)];
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
    fn a_circle_that_start_is_not_part_of_is_not_its_own() {
        assert_eq!(cycle(&[("a", "b"), ("b", "c"), ("c", "b")], "a"), None);
    }

    #[test]
    fn the_youngest_is_the_one_who_closed_the_circle() {
        let edges = [("a", "b"), ("c", "a"), ("b", "c"), ("b", "x"), ("b", "c")];
        for start in ["a", "b", "c"] {
            assert_eq!(circle(&edges, start).map(|circle| circle.youngest), Some(3));
        }
    }
}
