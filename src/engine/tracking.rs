//! Tracked holds, through all that happens to their locks: [`Engine::follow`] says
//! what a commit means for them, the rest what others have done.

use super::request::Terms;
use super::state::{Delivery, Grant, Hold, Ids, LockId, Session, Timer, Tracked, TrackedId};
use super::Engine;
use crate::core::{self, Kind, Lock, Millis};
use crate::ffi::Text;
use crate::store::{hold_of_key, locks_of_key, LockRef, Owner, ReadScope, Snapshot, Store};
use smallvec::SmallVec;

/// What an owner gives back by a commit, beside what has lapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// Nothing.
    Nothing,
    /// The live read hold of this rank, counted from 0.
    Read(usize),
    /// A write hold: this one, or one that is not tracked.
    Write(Option<TrackedId>),
    /// Every hold.
    All,
    /// Every write hold. A read hold that the owner gets for them is what is left
    /// of this one, or of one that is not tracked.
    Downgraded(Option<TrackedId>),
}

impl Returned {
    /// The rank of a read hold when this is done; None when it is among these.
    fn rank_after(self, rank: usize) -> Option<usize> {
        match self {
            Returned::All => None,
            Returned::Read(gone) if gone == rank => None,
            Returned::Read(gone) if gone < rank => Some(rank - 1),
            _ => Some(rank),
        }
    }
}

impl Engine {
    /// Names the hold that was just granted, and binds it if it shall be. `meant`:
    /// the rank of the read hold that ONCE meant.
    pub(super) fn name_grant(
        &mut self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
        after: &Lock,
        terms: Terms,
        meant: Option<usize>,
    ) -> Grant {
        let reads = after.own.reads.len();
        let (hold, is_new) = match terms.want {
            core::Want::Read => {
                let is_new = reads > snapshot.lock.own.reads.len();
                let rank = meant.filter(|_| !is_new).unwrap_or(reads.saturating_sub(1));
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
            let due = self.within(store.ctx(), renewal(terms.lease));
            let session = Session { client, lease: terms.lease, due };
            let id = match is_new {
                true => None,
                false => self.to_be_bound(store, snapshot, owner, hold, client),
            };
            let id = id.unwrap_or_else(|| {
                self.tracked.add(LockId::from(store.lock()), owner.bytes().into(), hold)
            });
            self.bind(id, Some(session));
            grant.tracked = Some(id);
        }
        grant
    }

    /// Who asked for a DOWNGRADE relies on the read hold that it was told of.
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

    /// Somebody relies on a hold that was granted to another: if its own client never
    /// learns of it, it stays all the same.
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

    /// What became of the tracked holds of a lock that was `snapshot` as `owner` sees
    /// it and is `after` now: holds that have ended end here, others follow their
    /// numbers.
    pub(super) fn follow(
        &mut self,
        store: &Store<'_>,
        owner: &[u8],
        snapshot: &Snapshot,
        after: &Lock,
        returned: Returned,
    ) {
        let lock = store.lock();
        if !self.tracked.has(lock) {
            return;
        }
        if snapshot.lock.is_free() || after.is_free() {
            return self.untrack_lock(lock);
        }
        // Write holds of somebody who does not write any more.
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
            let rank = snapshot.rank_of(number).and_then(|rank| returned.rank_after(rank))?;
            snapshot.numbers(after.own.reads.len()).nth(rank)
        });
        match returned {
            Returned::Write(Some(id)) => self.untrack(id),
            Returned::Downgraded(Some(id)) if snapshot.lock.own.reads.is_empty() => {
                let number = snapshot.numbers(1).next().unwrap_or(0);
                self.tracked.rename(id, Hold::Read(number));
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
                    Some(after) => self.tracked.rename(id, Hold::Read(after)),
                    None => self.untrack(id),
                }
            }
        }
    }

    /// The owner has no more than so many write holds. Nobody can tell which of
    /// them are gone: those that are not bound go first, then the newest.
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

    /// Somebody else may have changed the lock: tracked holds that the keys do not
    /// tell of end.
    pub(super) fn verify_tracked(&mut self, store: &Store<'_>) {
        if self.tracked.is_empty() {
            return;
        }
        for owner in self.tracked.take_doubtful(store.lock()) {
            let name = Text::new(&owner);
            let snapshot =
                Owner::new(&name).and_then(|owner| store.snapshot(&owner, ReadScope::Mode));
            if let Ok(snapshot) = snapshot {
                self.follow(store, &owner, &snapshot, &snapshot.lock, Returned::Nothing);
            }
        }
    }

    /// A key is gone, or another has taken its place: if it was the timeout key of
    /// a tracked read hold, that has ended.
    pub(super) fn untrack_hold_of(&mut self, db: i32, key: &[u8]) {
        if self.tracked.is_empty() {
            return;
        }
        for name in locks_of_key(key) {
            let lock = LockRef { db, name: &name };
            let Some((owner, number)) = hold_of_key(key, &name) else {
                continue;
            };
            let is_it = |(_, tracked): &(TrackedId, &Tracked)| tracked.hold == Hold::Read(number);
            let found = self.tracked.holds_of(lock, owner).find(is_it).map(|(id, _)| id);
            if let Some(id) = found {
                self.untrack(id);
            }
        }
    }

    /// A client that one of these holds is bound to; 0: none is.
    pub(super) fn session_of(&self, lock: LockRef<'_>, owner: &[u8], kind: Kind) -> u64 {
        let holds = self.tracked.holds_of(lock, owner);
        let mut of_kind = holds.filter(|(_, tracked)| tracked.hold.kind() == kind);
        of_kind.find_map(|(_, tracked)| tracked.session).map_or(0, |session| session.client)
    }

    /// Binds a tracked hold to another connection, or to none, and sets its alarm.
    pub(super) fn bind(&mut self, id: TrackedId, session: Option<Session>) {
        if let Some(before) = self.tracked.get(id).and_then(|tracked| tracked.session) {
            self.timers.remove(before.due, Timer::Session(id));
        }
        self.tracked.bind(id, session);
        if let Some(session) = session {
            self.timers.add(session.due, Timer::Session(id));
        }
    }

    /// Stops tracking a hold, which has ended or is like any other now.
    pub(super) fn untrack(&mut self, id: TrackedId) {
        if let Some(session) = self.tracked.remove(id).and_then(|tracked| tracked.session) {
            self.timers.remove(session.due, Timer::Session(id));
        }
    }

    /// All holds on a lock have ended.
    pub(super) fn untrack_lock(&mut self, lock: LockRef<'_>) {
        if self.tracked.has(lock) {
            for id in self.tracked.of_lock(lock) {
                self.untrack(id);
            }
        }
    }

    /// All holds on the locks of a database have ended, or of all databases.
    pub(super) fn untrack_db(&mut self, db: Option<i32>) {
        for lock in self.tracked.locks(db) {
            self.untrack_lock(lock.get());
        }
    }
}

/// A session hold is renewed every third of its lease.
pub(super) fn renewal(lease: Millis) -> Millis {
    (lease / 3).max(1)
}
