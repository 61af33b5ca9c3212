//! Who waits for whom, in a circle.

use super::queue::{OwnerId, WaiterId};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// The owners that one waits for, each with the waiter that came last of those
/// without which it would not.
#[derive(Debug, Default)]
pub struct Blockers(BTreeMap<OwnerId, WaiterId>);

impl Blockers {
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

/// Finds a circle through `start`, which is its first. `blockers` gives the
/// owners that one waits for (SPEC section 4: every other owner that holds the
/// lock, or that stands ahead in its queue and makes it wait). It may leave out
/// those that it has given before in this search, but never `start`.
pub fn find_cycle(
    start: &OwnerId,
    mut blockers: impl FnMut(&OwnerId) -> Blockers,
) -> Option<Circle> {
    let mut seen: HashSet<OwnerId> = HashSet::new();
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
                if seen.insert(owner.clone()) {
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
    use super::super::queue::{Policy, Queue, Want};
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
    fn a_search_is_told_of_each_owner_once() {
        let owners: Vec<OwnerId> = (0..1000).map(|n| owner(&format!("o{n}"))).collect();
        let mut queue = Queue::default();
        for (owner, id) in owners.iter().zip((1..).step_by(2)) {
            queue.push(id, Want::Read, owner.clone());
            queue.push(id + 1, Want::Write, owner.clone());
        }
        let several = owners.iter().cloned().collect();
        let start = &owners[999];
        let mut lineup = queue.line_up(None, Vec::new(), &several, Policy::Fifo);
        let mut told = 0;
        let circle = find_cycle(start, |of| {
            let mut blockers = Blockers::default();
            for waiter in queue.of_owner(of) {
                let policy = Policy::Fifo;
                queue.add_blockers(waiter, of, start, &mut lineup, policy, &mut blockers);
            }
            told += blockers.0.len();
            blockers
        });
        assert_eq!(circle, None);
        assert_eq!(told, 999);
    }

    #[test]
    fn the_youngest_is_the_one_who_closed_the_circle() {
        let edges = [("a", "b"), ("c", "a"), ("b", "c"), ("b", "x"), ("b", "c")];
        for start in ["a", "b", "c"] {
            assert_eq!(circle(&edges, start).map(|circle| circle.youngest), Some(3));
        }
    }
}
