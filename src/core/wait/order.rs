//! Which owners wait for which inside one queue: the edges of the waits-for graph
//! (`deadlock.rs`) that come from one lock.
//!
//! Each waiter has a turn, and waits for the owners that have an earlier turn. A waiter's turn
//! is not always its own arrival. When an owner is granted a hold, its other waiters are
//! served too, if a holder may have what they want. So a waiter takes over the earliest turn
//! among its owner's waiters whose grant also serves it. An example under fifo, with waiters
//! numbered by arrival:
//!
//! ```text
//! 5 ann write | 6 bob write | 7 ann read | 8 cat read
//! ```
//!
//! - 7 has the turn of 5, because a writer may also read. So 7 does not wait for bob.
//! - When 5 is removed, 7 has its own turn again, and ann waits for bob.
//! - 8 waits for ann and bob. Once bob's write is removed as well, 7 and 8 stand next to each
//!   other: readers share a turn unless a writer stands between them, so no
//!   waiter holds up 8.
//!
//! A joint waiter waits for other locks as well. So it may stand at the head of a queue while
//! the lock is free, and no waiter passes it. A reader behind a joint reader shares its turn,
//! and still waits for it.

use super::cycle::Blockers;
use super::queue::joins;
use super::Holding;
use super::{OwnerId, Policy, Queue, WaiterId, Want};
use crate::core::Mode;
use hashbrown::HashSet;
use std::ops::Range;

/// When a waiter is served, see the module's text. A smaller turn comes first: the order of
/// the fields is the order of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Upgrades have class 0. Under prefer-writers readers have class 2. All else is 1.
    class: u8,
    /// The arrival that counts inside the class; 0 where the whole class has one turn.
    at: WaiterId,
    /// Whether it is the turn of a reader, which may be granted together with others.
    shared: bool,
}

/// A queue, prepared for one search for circles. The search visits each owner once, so an
/// owner that [`Queue::add_blockers`] has returned for one waiter need not be returned for
/// another. The lineup remembers which owners were returned.
#[derive(Debug)]
pub struct Lineup {
    /// The holders of the lock. `holding.waiting` is sorted.
    holding: Holding,
    /// Whether the holders were returned.
    holders_returned: bool,
    /// The owners in this queue that wait in more than one place, or all owners, with their first waiter of
    /// each kind, in the order of their turns. Joint readers that go as writers are a kind.
    turns: Vec<(Turn, WaiterId, OwnerId)>,
    /// How many of `turns`, from the front, were returned.
    turns_returned: usize,
    /// The joint readers that arrived before this one were returned.
    joint_returned: WaiterId,
    policy: Policy,
}

impl Lineup {
    /// Adds the waiting holders. They are returned once; `start` each time.
    fn add_holders(
        &mut self,
        owner: &OwnerId,
        start: &OwnerId,
        since: WaiterId,
        blockers: &mut Blockers,
    ) {
        let holders = &self.holding.waiting;
        if !std::mem::replace(&mut self.holders_returned, true) {
            holders.iter().filter(|one| *one != owner).for_each(|one| blockers.add(one, since));
        } else if start != owner && holders.binary_search(start).is_ok() {
            blockers.add(start, since);
        }
    }

    /// Adds the owners with a turn before `limit` that were not returned before.
    fn add_turns(
        &mut self,
        owner: &OwnerId,
        limit: Turn,
        since: WaiterId,
        blockers: &mut Blockers,
    ) {
        let rest = self.turns.get(self.turns_returned..).unwrap_or_default();
        let before = rest.iter().take_while(|(turn, ..)| *turn < limit);
        for (_, ahead, other) in before {
            if other != owner {
                blockers.add(other, since.max(*ahead));
            }
            self.turns_returned += 1;
        }
    }
}

impl Queue {
    /// Prepares a search. `in_many_places`: [`WaitList::in_many_places`](super::WaitList); None:
    /// there are joint waiters. Then no edge is left out because its target waits in one place.
    pub fn line_up(
        &self,
        mut holding: Holding,
        in_many_places: Option<&HashSet<OwnerId>>,
        policy: Policy,
    ) -> Lineup {
        let mut turns = Vec::new();
        let mut add_turns = |owner: &OwnerId| {
            for (id, want) in self.first_of_each_kind(owner) {
                turns.push((self.own_turn(id, want, policy), id, owner.clone()));
            }
        };
        match in_many_places {
            None => self.owners().for_each(&mut add_turns),
            Some(many) if many.len() < self.owners().len() => many.iter().for_each(&mut add_turns),
            Some(many) => {
                self.owners().filter(|owner| many.contains(*owner)).for_each(&mut add_turns);
            }
        }
        turns.sort_unstable();
        holding.waiting.sort_unstable();
        Lineup {
            holding,
            holders_returned: false,
            turns,
            turns_returned: 0,
            joint_returned: 0,
            policy,
        }
    }

    /// Adds the owners that the waiter `id` of `owner` waits for: waiting holders of the
    /// lock, and owners with an earlier turn. An edge begins when the last waiter arrives
    /// that it needs, usually the later of the two.
    ///
    /// An edge is left out when the search does not need it:
    ///
    /// - Its target was returned before in this search. Edges to `start` stay: they close
    ///   the circle that is searched for.
    /// - Its target waits in this place only. Say ann waits for bob, who waits for cat, and
    ///   bob waits in this place only. Then cat is ahead of bob or holds the lock. So ann
    ///   waits for cat too, and each circle through bob has a shorter one without him.
    ///
    /// The second rule has two exceptions. If bob is `start`, the shorter circle would not
    /// lead through `start`, so edges to `start` stay. If cat is ann, there is no shorter
    /// circle: ann and bob wait for each other, because ann holds the lock or has another
    /// waiter ahead of bob. The last two blocks below add these edges.
    ///
    /// A waiter ahead counts with its own turn here. If another waiter of its owner has an
    /// earlier one, that waiter is ahead itself.
    pub fn add_blockers(
        &self,
        (id, want): (WaiterId, Want),
        owner: &OwnerId,
        start: &OwnerId,
        lineup: &mut Lineup,
        policy: Policy,
        blockers: &mut Blockers,
    ) {
        let waiting = |one: &OwnerId| lineup.holding.waiting.binary_search(one).is_ok();
        let is_open = match lineup.holding.mode {
            Some(Mode::Write) => want != Want::Upgrade,
            Some(Mode::Read) => want == Want::Read,
            None => false,
        };
        if is_open && waiting(owner) {
            // The place of a joint waiter whose owner has this lock, and waits for another.
            return;
        }
        let is_holder = waiting(owner);
        let turn = self.turn(id, want, owner, policy);
        let limit = self.limit(turn);
        let held_up = self.held_up_since((id, want), owner, turn, &lineup.holding, policy);
        let since = match held_up {
            // A reader that could join the holders under the policy, and cannot since then.
            Some(since) if joins(want, lineup.holding.mode, policy) => since,
            None if joins(want, lineup.holding.mode, policy) => return,
            Some(_) | None => id,
        };
        if let Some(since) = held_up {
            lineup.add_holders(owner, start, since, blockers);
        }
        let until = self.held_up_by_joint(owner, turn);
        self.add_joint_readers(owner, start, until, since, lineup, blockers);
        lineup.add_turns(owner, limit, since, blockers);
        if start != owner {
            for (ahead, want) in self.first_of_each_kind(start) {
                if self.own_turn(ahead, want, policy) < limit {
                    blockers.add(start, ahead.max(since));
                }
            }
        }
        // The owner holds the lock, so waiters ahead may wait for it. One of each kind is enough:
        // the first, which has the earliest turn of its kind.
        if is_holder {
            for want in [Want::Upgrade, Want::Write, Want::Read] {
                let mut line = self.line(want).iter();
                if let Some((&ahead, other)) = line.find(|(_, other)| *other != owner) {
                    if self.own_turn(ahead, want, policy) < limit {
                        blockers.add(other, ahead.max(since));
                    }
                }
            }
        }
        // The owner also has a reader ahead of this writer. A writer between the two waits for
        // that reader.
        if want == Want::Write {
            if let Some((read, want)) = self.first_of_kind(owner, Want::Read) {
                let first = self.turn(read, want, owner, policy);
                if let Some((ahead, other)) = self.writer_between(first, turn) {
                    blockers.add(other, ahead.max(since).max(read));
                }
            }
        }
    }

    /// Adds the owners of the joint readers that arrived before `until`.
    fn add_joint_readers(
        &self,
        owner: &OwnerId,
        start: &OwnerId,
        until: WaiterId,
        since: WaiterId,
        lineup: &mut Lineup,
        blockers: &mut Blockers,
    ) {
        for other in self.joint_readers_in(lineup.joint_returned..until, lineup.policy) {
            if other != owner {
                blockers.add(other, since);
            }
        }
        lineup.joint_returned = until.max(lineup.joint_returned);
        let mut of_start = self.of_owner(start).filter(|(id, _)| *id < until);
        if start != owner
            && of_start
                .any(|(id, _)| self.joint_readers_in(id..id + 1, lineup.policy).next().is_some())
        {
            blockers.add(start, since);
        }
    }

    /// The arrival ahead of which a joint reader holds up a reader with this turn, although they
    /// may share it; 0: none does.
    fn held_up_by_joint(&self, owner: &[u8], turn: Turn) -> WaiterId {
        match turn {
            Turn { shared: false, .. } => 0,
            // The whole class has one turn, so the arrival of the owner's first reader counts.
            Turn { class: READERS_LAST, .. } => {
                self.first_of_kind(owner, Want::Read).map_or(0, |(id, _)| id)
            }
            Turn { at, .. } => at,
        }
    }

    /// The owners of the joint readers in this range that do not go as writers: those have a turn
    /// of their own.
    fn joint_readers_in(
        &self,
        arrivals: Range<WaiterId>,
        policy: Policy,
    ) -> impl Iterator<Item = &OwnerId> {
        let range = (arrivals.start < arrivals.end).then(|| self.joint_readers.range(arrivals));
        let ids = range.into_iter().flatten().filter(move |id| {
            !policy.puts_writers_first() || !self.goes_as_writer(**id, Want::Read)
        });
        ids.filter_map(|id| self.line(Want::Read).get(id))
    }

    fn first_of_kind(&self, owner: &[u8], want: Want) -> Option<(WaiterId, Want)> {
        self.of_owner(owner).find(|(_, other)| *other == want)
    }

    fn first_of_each_kind<'a>(
        &'a self,
        owner: &'a [u8],
    ) -> impl Iterator<Item = (WaiterId, Want)> + 'a {
        let kinds = [Want::Upgrade, Want::Read, Want::Write];
        let of_kinds = kinds.into_iter().filter_map(|want| self.first_of_kind(owner, want));
        let joint = (!self.joint_readers.is_empty()).then(|| self.of_owner(owner));
        let mut joint = joint.into_iter().flatten();
        let writing =
            joint.find(|(id, want)| *want == Want::Read && self.goes_as_writer(*id, *want));
        of_kinds.chain(writing)
    }

    /// Since when a waiter waits for the holders: since its own arrival, or since the arrival
    /// of the first waiter that keeps it from joining the readers. None: the waiter is a
    /// reader that may join the readers that hold the lock. It waits for no owner, and gets its
    /// hold when the queue is served.
    fn held_up_since(
        &self,
        (id, want): (WaiterId, Want),
        owner: &OwnerId,
        turn: Turn,
        holding: &Holding,
        policy: Policy,
    ) -> Option<WaiterId> {
        if want != Want::Read || holding.mode != Some(Mode::Read) {
            return Some(id);
        }
        let upgrade = self.line(Want::Upgrade).keys().next();
        if policy.lets_readers_join() {
            return upgrade.map(|ahead| id.max(*ahead));
        }
        if holding.reserved_by.as_ref().is_some_and(|by| by != owner) {
            return Some(id);
        }
        let first = self.line(Want::Write).keys().next();
        let writer = first.filter(|first| turn.class == READERS_LAST || **first < turn.at);
        upgrade.into_iter().chain(writer).min().map(|ahead| id.max(*ahead))
    }

    /// A waiter with this turn waits for all turns before the limit. For a reader the limit
    /// is just behind the last writer ahead in its class, because the readers behind that
    /// writer are granted together.
    fn limit(&self, turn: Turn) -> Turn {
        if !turn.shared {
            return turn;
        }
        let mut writers = self.line(Want::Write).range(..turn.at).rev();
        let last = writers.find(|(id, owner)| self.has_own_turn(**id, owner));
        Turn { at: last.map_or(0, |(id, _)| *id), ..turn }
    }

    /// The first writer whose turn comes between these two turns of one class.
    fn writer_between(&self, ahead: Turn, behind: Turn) -> Option<(WaiterId, &OwnerId)> {
        if ahead.class != behind.class || ahead.at >= behind.at {
            return None;
        }
        let mut writers = self.line(Want::Write).range(ahead.at..behind.at);
        let first = writers.find(|(id, owner)| self.has_own_turn(**id, owner));
        first.map(|(&id, owner)| (id, owner))
    }

    /// Whether a writer has a turn of its own. It has not when an upgrade or an earlier
    /// writer of the same owner serves it.
    fn has_own_turn(&self, id: WaiterId, owner: &[u8]) -> bool {
        !self.of_owner(owner).any(|(other, want)| match want {
            Want::Upgrade => true,
            Want::Write => other < id,
            Want::Read => false,
        })
    }

    /// The waiter's turn: the earliest of its own and of those that it takes over.
    fn turn(&self, id: WaiterId, want: Want, owner: &OwnerId, policy: Policy) -> Turn {
        let serving = self.of_owner(owner).filter(|(_, other)| serves(*other, want));
        let turns = serving.map(|(id, want)| self.own_turn(id, want, policy));
        turns.fold(self.own_turn(id, want, policy), Turn::min)
    }

    /// The turn that a waiter would have if its owner had no other waiter.
    fn own_turn(&self, id: WaiterId, want: Want, policy: Policy) -> Turn {
        let writers_first = policy.puts_writers_first();
        let (class, at) = match want {
            Want::Upgrade => (0, 0),
            Want::Read if writers_first && !self.goes_as_writer(id, want) => (READERS_LAST, 0),
            // Under prefer-readers a reader may be served before its turn, together with a
            // reader that is ahead. But that reader may be removed, so it does not count.
            Want::Read | Want::Write => (1, id),
        };
        let shared = want == Want::Read && (class == READERS_LAST || !writers_first);
        Turn { class, at, shared }
    }
}

/// The class of the readers under prefer-writers, see [`Turn`].
const READERS_LAST: u8 = 2;

/// Whether a grant of `granted` also serves a waiter of the same owner that wants `other`.
fn serves(granted: Want, other: Want) -> bool {
    match granted {
        Want::Upgrade | Want::Write => other != Want::Upgrade,
        Want::Read => other == Want::Read,
    }
}
