//! Whose turn in a queue comes before whose: the edges of the waits-for graph
//! inside a queue.

use super::cycle::Blockers;
use super::Holding;
use super::{OwnerId, Policy, Queue, WaiterId, Want};
use crate::core::Mode;
use hashbrown::HashSet;

/// When a waiter's turn comes: that of the first of its owner's waiters whose
/// grant serves it too. Smaller comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    class: u8,
    at: WaiterId,
    /// Whether others may be granted beside it.
    shared: bool,
}

/// A queue as one search for circles sees it. All who hold the lock or stand
/// ahead of one owner do so for those behind it too, so each is named once: the
/// search comes to him anyway.
#[derive(Debug)]
pub struct Lineup {
    /// The holders that wait are in the order of their names.
    holding: Holding,
    holders_named: bool,
    /// The first waiters of those who wait in several places, a line for each
    /// kind, in the order of their turns.
    turns: Vec<(Turn, WaiterId, OwnerId)>,
    /// How many of them are named.
    named: usize,
}

impl Queue {
    /// Prepares for a search. `several`: the owners who wait in several places, be it for
    /// several locks or for several kinds of holds on one.
    pub fn line_up(
        &self,
        mut holding: Holding,
        in_many_places: &HashSet<OwnerId>,
        policy: Policy,
    ) -> Lineup {
        let mut turns = Vec::new();
        let mut stand = |owner: &OwnerId| {
            for (id, want) in self.first_of_each_kind(owner) {
                turns.push((own_turn(id, want, policy), id, owner.clone()));
            }
        };
        if in_many_places.len() < self.owners().len() {
            in_many_places.iter().for_each(&mut stand);
        } else {
            self.owners().filter(|owner| in_many_places.contains(*owner)).for_each(&mut stand);
        }
        turns.sort_unstable();
        holding.waiting.sort_unstable();
        Lineup { holding, holders_named: false, turns, named: 0 }
    }

    /// Adds the owners that hold the lock, or stand ahead of a waiter and make it
    /// wait, each with the younger of the two waiters; but not those that this
    /// search was told of before, unless it is `start`, the owner through whom a
    /// circle is looked for. A waiter that stands ahead counts by its own turn. That
    /// another waiter of the same owner would serve it too when granted is left out:
    /// if that one has the earlier turn, it stands ahead itself.
    ///
    /// Of those who wait in no other place there is no need: they wait for the
    /// same holders and for some of the same owners ahead, so that a circle
    /// through them has a shorter one beside it. The exception is a circle of
    /// two, of such a one and the waiter's own owner, which it waits for: one who
    /// holds the lock, or has another waiter farther ahead. Nor does it apply to
    /// `start`: the shorter one beside it would not be found from there.
    pub fn add_blockers(
        &self,
        (id, want): (WaiterId, Want),
        owner: &OwnerId,
        start: &OwnerId,
        lineup: &mut Lineup,
        policy: Policy,
        blockers: &mut Blockers,
    ) {
        let Lineup { holding, holders_named, turns, named } = lineup;
        let holders = &holding.waiting;
        let holds = |one: &OwnerId| holders.binary_search(one).is_ok();
        let Some(since) = self.held_up_since((id, want), owner, holding, policy) else {
            return;
        };
        if !std::mem::replace(holders_named, true) {
            holders.iter().filter(|one| *one != owner).for_each(|one| blockers.add(one, since));
        } else if start != owner && holds(start) {
            blockers.add(start, since);
        }
        let turn = self.turn(id, want, owner, policy);
        let limit = self.limit(turn);
        while let Some((_, ahead, other)) = turns.get(*named).filter(|(turn, ..)| *turn < limit) {
            if other != owner {
                blockers.add(other, id.max(*ahead));
            }
            *named += 1;
        }
        if start != owner {
            for (ahead, want) in self.first_of_each_kind(start) {
                if own_turn(ahead, want, policy) < limit {
                    blockers.add(start, ahead.max(id));
                }
            }
        }
        if holds(owner) {
            for want in [Want::Upgrade, Want::Write, Want::Read] {
                let mut line = self.line(want).iter();
                if let Some((&ahead, other)) = line.find(|(_, other)| *other != owner) {
                    if own_turn(ahead, want, policy) < limit {
                        blockers.add(other, ahead.max(id));
                    }
                }
            }
        }
        if want == Want::Write {
            if let Some((read, want)) = self.first_of_kind(owner, Want::Read) {
                let first = self.turn(read, want, owner, policy);
                if let Some((ahead, other)) = self.writer_between(first, turn) {
                    blockers.add(other, ahead.max(id).max(read));
                }
            }
        }
    }

    fn first_of_kind(&self, owner: &[u8], want: Want) -> Option<(WaiterId, Want)> {
        self.of_owner(owner).find(|(_, other)| *other == want)
    }

    fn first_of_each_kind<'a>(
        &'a self,
        owner: &'a [u8],
    ) -> impl Iterator<Item = (WaiterId, Want)> + 'a {
        let kinds = [Want::Upgrade, Want::Read, Want::Write];
        kinds.into_iter().filter_map(|want| self.first_of_kind(owner, want))
    }

    /// Since when a waiter waits for the holders: since it came, or since the first one
    /// ahead came that holds it up. None: it is a reader that may join those who read, and
    /// it will when the queue is served. It waits for nobody.
    fn held_up_since(
        &self,
        (id, want): (WaiterId, Want),
        owner: &OwnerId,
        holding: &Holding,
        policy: Policy,
    ) -> Option<WaiterId> {
        if want != Want::Read || holding.mode != Some(Mode::Read) {
            return Some(id);
        }
        let upgrade = self.line(Want::Upgrade).keys().next();
        let (writer, by_reservation) = match policy {
            Policy::Fifo => (self.line(Want::Write).range(..id).next().map(|(id, _)| id), true),
            Policy::PreferWriters => (self.line(Want::Write).keys().next(), true),
            Policy::PreferReaders => (None, false),
        };
        if by_reservation && holding.reserved_by.as_ref().is_some_and(|by| by != owner) {
            return Some(id);
        }
        upgrade.into_iter().chain(writer).min().map(|ahead| id.max(*ahead))
    }

    /// Whose turn is before this makes the one with this turn wait: readers let
    /// each other in where no writer stands between them.
    fn limit(&self, turn: Turn) -> Turn {
        if !turn.shared {
            return turn;
        }
        let mut writers = self.line(Want::Write).range(..turn.at).rev();
        let last = writers.find(|(id, owner)| self.comes_first(**id, owner));
        Turn { at: last.map_or(0, |(id, _)| *id), ..turn }
    }

    /// The first writer whose own turn comes between these two.
    fn writer_between(&self, ahead: Turn, behind: Turn) -> Option<(WaiterId, &OwnerId)> {
        if ahead.class != behind.class || ahead.at >= behind.at {
            return None;
        }
        let mut writers = self.line(Want::Write).range(ahead.at..behind.at);
        let first = writers.find(|(id, owner)| self.comes_first(**id, owner));
        first.map(|(&id, owner)| (id, owner))
    }

    /// Whether a writer has a turn of its own, and not that of an upgrade or of an
    /// earlier writer of the same owner.
    fn comes_first(&self, id: WaiterId, owner: &[u8]) -> bool {
        !self.of_owner(owner).any(|(other, want)| match want {
            Want::Upgrade => true,
            Want::Write => other < id,
            Want::Read => false,
        })
    }

    fn turn(&self, id: WaiterId, want: Want, owner: &OwnerId, policy: Policy) -> Turn {
        let opening = self.of_owner(owner).filter(|(_, other)| opens(*other, want));
        let turns = opening.map(|(id, want)| own_turn(id, want, policy));
        turns.fold(own_turn(id, want, policy), Turn::min)
    }
}

/// When its turn would come if its owner had no other waiter.
fn own_turn(id: WaiterId, want: Want, policy: Policy) -> Turn {
    let shared = want == Want::Read;
    let (class, at) = match (want, policy) {
        (Want::Upgrade, _) => (0, 0),
        (Want::Read, Policy::PreferWriters) => (2, 0),
        // Under prefer-readers a reader may get in earlier, with another
        // that is ahead; not if that one leaves.
        _ => (1, id),
    };
    Turn { class, at, shared }
}

/// Whether the grant of the one serves a waiter of the same owner who wants the
/// other.
fn opens(granted: Want, other: Want) -> bool {
    match granted {
        Want::Upgrade | Want::Write => other != Want::Upgrade,
        Want::Read => other == Want::Read,
    }
}
