//! Chooses the hold that a command means when an owner has more than one. UNLOCK, DOWNGRADE and
//! ONCE with SESSION prefer the hold that is bound to the calling connection.

use super::request::Terms;
use super::state::{Hold, Tracked, TrackedId};
use super::tracking::GivenUp;
use super::Engine;
use crate::core::{self, Kind, Which};
use crate::ffi::Ctx;
use crate::store::{LockRef, Owner, Snapshot, Store};

impl Engine {
    /// The rank of the owner's read hold that ONCE means. With SESSION it is the highest one that
    /// is bound to the calling connection. None: the owner's highest.
    pub(super) fn once_rank(
        &self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &[u8],
        terms: Terms,
    ) -> Option<usize> {
        let client = terms.session.filter(|_| terms.once && !self.tracked.is_empty())?;
        let own = self.bound_to(store.lock(), owner, Kind::Read, client);
        let ranks = own.filter_map(|(_, tracked)| match tracked.hold {
            Hold::Read(number) => snapshot.rank_of(number),
            Hold::Write => None,
        });
        ranks.max()
    }

    fn bound_to<'e>(
        &'e self,
        lock: LockRef<'_>,
        owner: &[u8],
        kind: Kind,
        client: u64,
    ) -> impl Iterator<Item = (TrackedId, &'e Tracked)> {
        self.tracked.holds_of(lock, owner).filter(move |(_, tracked)| {
            tracked.hold.kind() == kind && tracked.session.is_some_and(|by| by.client == client)
        })
    }

    /// The tracked hold that ONCE with SESSION binds to a client. First choice is the hold that is
    /// bound to this client already, then any tracked hold that `hold` names. Among write holds a
    /// plain hold goes before one of another connection. None: the chosen hold is not tracked yet.
    pub(super) fn hold_to_bind(
        &self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        hold: Hold,
        client: u64,
    ) -> Option<TrackedId> {
        let (lock, owner) = (store.lock(), owner.bytes());
        let own = self.bound_to(lock, owner, hold.kind(), client);
        if let Some((id, _)) = own.filter(|(_, own)| own.hold == hold).last() {
            return Some(id);
        }
        let same_hold =
            || self.tracked.holds_of(lock, owner).filter(|(_, other)| other.hold == hold);
        if hold == Hold::Write && snapshot.lock.own.writes > same_hold().count() as u64 {
            return None;
        }
        let plain = same_hold().rfind(|(_, other)| other.session.is_none());
        plain.or_else(|| same_hold().next_back()).map(|(id, _)| id)
    }

    /// The hold that UNLOCK releases: first a session hold of the calling connection, then a plain
    /// hold, then a hold of another connection. Among equals it is the read hold with the highest
    /// number, or the newest write hold. With ALL it is every hold.
    pub(super) fn choose_released(
        &self,
        store: &Store<'_>,
        owner: &[u8],
        snapshot: &Snapshot,
        which: Which,
    ) -> GivenUp {
        let Some(kind) = core::kind_to_release(&snapshot.lock, which) else {
            return GivenUp::All;
        };
        let tracked = self.tracked.holds_of(store.lock(), owner);
        let bound: Vec<(TrackedId, Hold, u64)> = tracked
            .filter(|(_, tracked)| tracked.hold.kind() == kind)
            .filter_map(|(id, tracked)| Some((id, tracked.hold, tracked.session?.client)))
            .collect();
        let client = caller(store.ctx(), bound.iter().map(|(.., client)| *client));
        match kind {
            Kind::Write => {
                let own = bound.iter().rfind(|(.., of)| Some(*of) == client);
                let plain = snapshot.lock.own.writes > bound.len() as u64;
                let others = bound.last().filter(|_| !plain);
                GivenUp::Write(own.or(others).map(|(id, ..)| *id))
            }
            Kind::Read => {
                let mut priorities = vec![1_u8; snapshot.lock.own.reads.len()];
                for (_, hold, of) in bound {
                    let Hold::Read(number) = hold else {
                        continue;
                    };
                    if let Some(priority) =
                        snapshot.rank_of(number).and_then(|rank| priorities.get_mut(rank))
                    {
                        *priority = if Some(of) == client { 2 } else { 0 };
                    }
                }
                let best = (0..priorities.len()).max_by_key(|rank| (priorities[*rank], *rank));
                best.map_or(GivenUp::Nothing, GivenUp::Read)
            }
        }
    }

    /// The write hold that DOWNGRADE turns into a read hold: the one that UNLOCK would release. The
    /// read hold keeps its binding to a connection.
    pub(super) fn choose_downgraded(
        &self,
        store: &Store<'_>,
        owner: &[u8],
        snapshot: &Snapshot,
    ) -> GivenUp {
        if !self.tracked.has(store.lock()) {
            return GivenUp::Downgraded(None);
        }
        let chosen = match self.choose_released(store, owner, snapshot, Which::One(Kind::Write)) {
            GivenUp::Write(chosen) => chosen,
            _ => None,
        };
        // `choose_released` returns None for a plain hold. A plain hold may still be tracked,
        // because its answer is in flight.
        let is_write = |(_, tracked): &(TrackedId, &Tracked)| tracked.hold == Hold::Write;
        let writes = || self.tracked.holds_of(store.lock(), owner).filter(is_write);
        let all_tracked = writes().count() as u64 >= snapshot.lock.own.writes;
        GivenUp::Downgraded(chosen.or_else(|| {
            let mut plain = writes().filter(|(_, tracked)| tracked.session.is_none());
            plain.next_back().filter(|_| all_tracked).map(|(id, _)| id)
        }))
    }
}

/// The client that runs the command, or that called the script which runs it. For a script the
/// server only says which of the `bound` clients called it; None if none of them did.
fn caller(ctx: Ctx<'_>, bound: impl Iterator<Item = u64>) -> Option<u64> {
    let mut clients: Vec<u64> = bound.collect();
    clients.sort_unstable();
    clients.dedup();
    if clients.is_empty() {
        return None;
    }
    // The commands of a script run in a client of their own, so its id would be wrong (Valkey 9.1
    // returns one).
    match ctx.situation().script {
        true => ctx.script_caller(&clients),
        false => ctx.client_id(),
    }
}
