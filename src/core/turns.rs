//! Whose turn in a queue comes before whose: the edges of the waits-for graph
//! inside a queue (SPEC section 4).

use super::deadlock::Blockers;
use super::queue::{OwnerId, Policy, Queue, WaiterId, Want};

/// When a waiter's turn comes: that of the first of its owner's waiters whose
/// grant serves it too. Smaller comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    class: u8,
    at: WaiterId,
    /// Whether others may be granted beside it.
    shared: bool,
}

impl Queue {
    /// Adds the owners that stand ahead of a waiter and make it wait, each with
    /// the younger of the two waiters.
    ///
    /// Of those who wait nowhere else there is no need: they wait for the same
    /// holders and for some of the same owners ahead, so that a circle through
    /// them has a shorter one beside it. The exception is a circle of two, of
    /// such a one and the waiter's own owner, which it waits for: one who
    /// `holds` the lock, or has another waiter farther ahead. `kept`: those to
    /// whom this does not apply, which are the owners with more than one waiter,
    /// and the one through whom a circle is looked for: the shorter one beside it
    /// would not be found from there.
    pub fn add_those_ahead<'a>(
        &self,
        (id, want): (WaiterId, Want),
        owner: &OwnerId,
        holds: &[OwnerId],
        kept: impl Iterator<Item = &'a OwnerId>,
        policy: Policy,
        blockers: &mut Blockers,
    ) {
        let turn = self.turn(id, want, owner, policy);
        for other in kept.filter(|other| *other != owner) {
            for (ahead, want) in self.of_owner(other) {
                if self.is_before(self.turn(ahead, want, other, policy), turn) {
                    blockers.add(other, ahead.max(id));
                }
            }
        }
        if holds.contains(owner) {
            for want in [Want::Upgrade, Want::Write, Want::Read] {
                let mut line = self.line(want).iter();
                if let Some((&ahead, other)) = line.find(|(_, other)| *other != owner) {
                    if self.is_before(self.turn(ahead, want, other, policy), turn) {
                        blockers.add(other, ahead.max(id));
                    }
                }
            }
        }
        if want == Want::Write {
            let reads = self.of_owner(owner).filter(|(_, want)| *want == Want::Read);
            for (read, want) in reads {
                let first = self.turn(read, want, owner, policy);
                if let Some((ahead, other)) = self.writer_between(first, turn) {
                    blockers.add(other, ahead.max(id).max(read));
                }
            }
        }
    }

    fn is_before(&self, ahead: Turn, behind: Turn) -> bool {
        let alike = ahead.shared && behind.shared;
        ahead < behind && (!alike || self.writer_between(ahead, behind).is_some())
    }

    /// The first writer whose own turn comes between these two.
    fn writer_between(&self, ahead: Turn, behind: Turn) -> Option<(WaiterId, &OwnerId)> {
        if ahead.class != behind.class || ahead.at >= behind.at {
            return None;
        }
        let mut writers = self.line(Want::Write).range(ahead.at..behind.at);
        let comes_first = |id: WaiterId, owner: &OwnerId| {
            !self.of_owner(owner).any(|(other, want)| match want {
                Want::Upgrade => true,
                Want::Write => other < id,
                Want::Read => false,
            })
        };
        writers.find(|(id, owner)| comes_first(**id, owner)).map(|(&id, owner)| (id, owner))
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
