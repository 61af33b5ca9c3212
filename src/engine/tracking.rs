//! What happens to tracked holds. [`Engine::follow`] updates them after a commit,
//! [`Engine::verify_tracked`] after an external change.

use super::request::Terms;
use super::state::{Delivery, Grant, Hold, Ids, LockId, Session, Timer, Tracked, TrackedId};
use super::Engine;
use crate::core::{self, Kind, Lock, Millis};
use crate::ffi::Text;
use crate::planted::client_to_bind;
use crate::store::{hold_of_key, locks_of_key, LockRef, Owner, ReadScope, Snapshot, Store};
use smallvec::SmallVec;

/// What an owner gives up by a commit. Lapsed holds are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Nothing,
    /// The live read hold with this rank, counted from 0.
    Read(usize),
    /// This write hold. None: one that is not tracked.
    Write(Option<TrackedId>),
    /// All holds of the owner.
    All,
    /// All write holds of the owner. This one becomes the owner's read hold, if it had no read hold
    /// before. None: a write hold that is not tracked becomes it.
    Downgraded(Option<TrackedId>),
}

impl GivenUp {
    /// The new rank of a read hold after the commit. None: the hold is given up.
    fn rank_after(self, rank: usize) -> Option<usize> {
        match self {
            GivenUp::All => None,
            GivenUp::Read(given_up) if given_up == rank => None,
            GivenUp::Read(given_up) if given_up < rank => Some(rank - 1),
            _ => Some(rank),
        }
    }
}

impl Engine {
    /// Describes the hold that was granted, and binds it if SESSION asks for that. `once_rank`: the
    /// rank of the read hold that ONCE meant.
    pub(super) fn record_grant(
        &mut self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        (want, terms): (core::Want, Terms),
        once_rank: Option<usize>,
    ) -> Grant {
        let reads = after.own.reads.len();
        let (hold, is_new) = match want {
            core::Want::Read => {
                let is_new = reads > snapshot.lock.own.reads.len();
                let rank = once_rank.filter(|_| !is_new).unwrap_or(reads.saturating_sub(1));
                (Hold::Read(snapshot.numbers(reads).nth(rank).unwrap_or(0)), is_new)
            }
            core::Want::Write | core::Want::Upgrade => {
                (Hold::Write, after.own.writes > snapshot.lock.own.writes)
            }
        };
        let mut grant = Grant { hold, is_new, token: None, tracked: None };
        if !is_new {
            self.rely_on(store.lock(), owner.bytes(), hold);
        }
        if let Some(client) = terms.session {
            let client = client_to_bind(client);
            let due = self.within(store.ctx(), renewal_interval(terms.lease));
            let session = Session { client, lease: terms.lease, due };
            let id = match is_new {
                true => None,
                false => self.hold_to_bind(store, snapshot, owner, hold, client),
            };
            let id = id.unwrap_or_else(|| {
                self.tracked.add(LockId::from(store.lock()), owner.bytes().into(), hold)
            });
            self.bind(id, Some(session));
            grant.tracked = Some(id);
        }
        grant
    }

    /// Marks the read hold that DOWNGRADE confirmed to its client: the client relies on it.
    pub(super) fn rely_on_highest(
        &mut self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
    ) {
        if self.tracked.has(store.lock()) {
            if let Some(number) = snapshot.numbers(after.own.reads.len()).last() {
                self.rely_on(store.lock(), owner.bytes(), Hold::Read(number));
            }
        }
    }

    /// Keeps a hold that was granted to another client whose answer is in flight or lost: the
    /// client of this request relies on it, too.
    fn rely_on(&mut self, lock: LockRef<'_>, owner: &[u8], hold: Hold) {
        let holds = self.tracked.holds_of(lock, owner).filter(|(_, other)| other.hold == hold);
        let answers: SmallVec<[_; 2]> = holds.map(|(id, tracked)| (id, tracked.delivery)).collect();
        for (id, answer) in answers {
            if answer == Delivery::InFlight {
                self.tracked.set_delivery(id, Delivery::ReliedOn);
            }
            self.tracked.set_lost(id, false);
        }
    }

    /// Updates the tracked holds after a commit. Holds that have ended are dropped. The others get
    /// their new numbers. `snapshot` and `after` are the lock before and after, as `owner` sees it.
    pub(super) fn follow(
        &mut self,
        store: &Store<'_>,
        owner: &[u8],
        snapshot: &Snapshot,
        after: &Lock,
        given_up: GivenUp,
    ) {
        let lock = store.lock();
        if !self.tracked.has(lock) {
            return;
        }
        if snapshot.lock.is_free() || after.is_free() {
            return self.untrack_lock(lock);
        }
        let others_may_write =
            snapshot.lock.mode() == Some(core::Mode::Write) && snapshot.lock.own.writes == 0;
        if let Some(writer) = self.tracked.writer(lock).filter(|writer| ***writer != *owner) {
            if !others_may_write {
                let writer = writer.clone();
                self.limit_writes(lock, &writer, 0);
            }
        }
        for (other, number_after) in snapshot.repaired_readers() {
            self.follow_reads(lock, other, number_after);
        }
        self.follow_reads(lock, owner, |number| {
            let rank = snapshot.rank_of(number).and_then(|rank| given_up.rank_after(rank))?;
            snapshot.numbers(after.own.reads.len()).nth(rank)
        });
        match given_up {
            GivenUp::Write(Some(id)) => self.untrack(id),
            GivenUp::Downgraded(Some(id)) if snapshot.lock.own.reads.is_empty() => {
                let number = snapshot.numbers(1).next().unwrap_or(0);
                self.tracked.set_hold(id, Hold::Read(number));
            }
            _ => {}
        }
        self.limit_writes(lock, owner, snapshot.lock.own.writes.min(after.own.writes));
    }

    fn follow_reads(
        &mut self,
        lock: LockRef<'_>,
        owner: &[u8],
        number_after: impl Fn(u64) -> Option<u64>,
    ) {
        let ids = Ids::from_slice(self.tracked.of_owner(lock, owner));
        for id in ids {
            if let Some(Hold::Read(number)) = self.tracked.get(id).map(|tracked| tracked.hold) {
                match number_after(number) {
                    Some(after) => self.tracked.set_hold(id, Hold::Read(after)),
                    None => self.untrack(id),
                }
            }
        }
    }

    /// Stops tracking some of an owner's write holds, so that at most `limit` remain. Which of them
    /// ended cannot be known. Holds without a connection are dropped first, the newest first; then
    /// those with one, the newest first.
    fn limit_writes(&mut self, lock: LockRef<'_>, owner: &[u8], limit: u64) {
        let is_write = |tracked: &Tracked| tracked.hold == Hold::Write;
        let writes = self.tracked.holds_of(lock, owner).filter(|(_, tracked)| is_write(tracked));
        let mut ids: Vec<(bool, TrackedId)> =
            writes.map(|(id, tracked)| (tracked.session.is_none(), id)).collect();
        ids.sort_unstable();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        for (_, id) in ids.into_iter().skip(limit) {
            self.untrack(id);
        }
    }

    /// Drops tracked holds that the keys do not confirm. Does nothing unless an external change has
    /// marked the lock.
    pub(super) fn verify_tracked(&mut self, store: &Store<'_>) {
        if self.tracked.is_empty() {
            return;
        }
        for owner in self.tracked.take_doubtful_owners(store.lock()) {
            let name = Text::new(&owner);
            let snapshot =
                Owner::new(&name).and_then(|owner| store.snapshot(&owner, ReadScope::Mode));
            if let Ok(snapshot) = snapshot {
                self.follow(store, &owner, &snapshot, &snapshot.lock, GivenUp::Nothing);
            }
        }
    }

    /// Drops the tracked read hold whose timeout key is `key`, because that key was deleted or
    /// overwritten.
    pub(super) fn untrack_hold_of(&mut self, db: i32, key: &[u8]) {
        if self.tracked.is_empty() {
            return;
        }
        for name in locks_of_key(key) {
            let lock = LockRef { db, name: &name };
            let Some((owner, number)) = hold_of_key(key, &name) else {
                continue;
            };
            let is_same = |(_, tracked): &(TrackedId, &Tracked)| tracked.hold == Hold::Read(number);
            let id = self.tracked.holds_of(lock, owner).find(is_same).map(|(id, _)| id);
            if let Some(id) = id {
                self.untrack(id);
            }
        }
    }

    /// The id of a client that one of the owner's holds of this kind is bound to. 0: none is bound.
    pub(super) fn session_of(&self, lock: LockRef<'_>, owner: &[u8], kind: Kind) -> u64 {
        let holds = self.tracked.holds_of(lock, owner);
        let mut of_kind = holds.filter(|(_, tracked)| tracked.hold.kind() == kind);
        of_kind.find_map(|(_, tracked)| tracked.session).map_or(0, |session| session.client)
    }

    /// Binds a tracked hold to another connection or to none, and sets the timer for its renewal.
    pub(super) fn bind(&mut self, id: TrackedId, session: Option<Session>) {
        if let Some(before) = self.tracked.get(id).and_then(|tracked| tracked.session) {
            self.timers.remove(before.due, Timer::Session(id));
        }
        self.tracked.bind(id, session);
        if let Some(session) = session {
            self.timers.add(session.due, Timer::Session(id));
        }
    }

    /// Stops tracking a hold that has ended or needs it no more.
    pub(super) fn untrack(&mut self, id: TrackedId) {
        if let Some(session) = self.tracked.remove(id).and_then(|tracked| tracked.session) {
            self.timers.remove(session.due, Timer::Session(id));
        }
    }

    /// Stops tracking all holds on a lock: they have ended.
    pub(super) fn untrack_lock(&mut self, lock: LockRef<'_>) {
        if self.tracked.has(lock) {
            for id in self.tracked.of_lock(lock) {
                self.untrack(id);
            }
        }
    }

    /// Stops tracking all holds on the locks of a database. None: of all databases.
    pub(super) fn untrack_db(&mut self, db: Option<i32>) {
        for lock in self.tracked.locks(db) {
            self.untrack_lock(lock.get());
        }
    }
}

/// The ms between two renewals of a session hold: a third of its lease.
pub(super) fn renewal_interval(lease: Millis) -> Millis {
    (lease / 3).max(1)
}
