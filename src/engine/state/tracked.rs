//! Tracked holds: holds that are bound to a connection, and holds whose answer is in flight. Memory
//! must tell these from the owner's other holds.
//!
//! A hold is tracked until it ends, even if its number changes or its lock gets another name. The
//! id of a tracked hold is never used again, so an old id cannot mean a later hold.

use super::clock::Moment;
use super::memory::LockId;
use crate::core::{give_room_back, Kind, Millis, OwnerId, Token};
use crate::store::LockRef;
use hashbrown::{Equivalent, HashMap};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The id of a tracked hold, never used again.
pub type TrackedId = u64;

/// The ids of one owner's tracked holds on one lock. Most often there is one.
pub type Ids = SmallVec<[TrackedId; 2]>;

/// Names one of an owner's holds on a lock, at present. Write holds have no numbers, so this cannot
/// tell one of them from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The read hold with this number, from 1.
    Read(u64),
    /// A write hold.
    Write,
}

impl Hold {
    pub fn kind(self) -> Kind {
        match self {
            Hold::Read(_) => Kind::Read,
            Hold::Write => Kind::Write,
        }
    }
}

/// What a request was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The hold, with its number at the time of the grant.
    pub hold: Hold,
    /// Whether the hold is new. With ONCE the owner may have had it before.
    pub is_new: bool,
    /// The fencing token, if one was asked for.
    pub token: Option<Token>,
    /// The id of the hold, if it is tracked.
    pub tracked: Option<TrackedId>,
}

/// The connection that a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id of the client.
    pub client: u64,
    /// The lease that each renewal gives the hold, in ms.
    pub lease: Millis,
    /// When the next renewal is due.
    pub due: Moment,
}

/// Whether the client knows that it has the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The client knows it. This includes holds that were granted at once.
    Delivered,
    /// The answer is in flight. If the answer is lost, the hold is returned.
    InFlight,
    /// The answer is in flight, but a later ONCE or DOWNGRADE relies on the hold. It stays if the
    /// answer is lost, unless it is bound to a connection that closes.
    ReliedOn,
}

/// A tracked hold.
#[derive(Clone, Debug)]
pub struct Tracked {
    pub lock: LockId,
    pub owner: OwnerId,
    pub hold: Hold,
    pub session: Option<Session>,
    pub delivery: Delivery,
    /// The answer was lost or the return failed, and the hold is to be returned. A request that
    /// relies on the hold or binds it before that clears this.
    pub is_lost: bool,
}

/// All tracked holds.
#[derive(Default)]
pub struct TrackedHolds {
    last_id: TrackedId,
    /// The last id that was added before the present use case began.
    last_before_work: TrackedId,
    by_id: HashMap<TrackedId, Tracked>,
    by_client: HashMap<u64, BTreeSet<TrackedId>>,
    by_lock: HashMap<LockId, LockHolds>,
}

/// The tracked holds on one lock.
#[derive(Default)]
struct LockHolds {
    owners: HashMap<OwnerId, Ids>,
    /// The last owner whose write hold was tracked here. The hold may have ended.
    writer: Option<OwnerId>,
    /// Whether an external change happened since the last refresh.
    is_doubtful: bool,
}

impl Equivalent<LockId> for LockRef<'_> {
    fn equivalent(&self, id: &LockId) -> bool {
        *self == id.get()
    }
}

impl TrackedHolds {
    /// Whether no hold is tracked.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The number of holds that are bound to a connection.
    pub fn sessions(&self) -> usize {
        self.by_client.values().map(BTreeSet::len).sum()
    }

    /// Marks the begin of a use case, for [`TrackedHolds::of_lock_before_work`].
    pub fn begin_work(&mut self) {
        self.last_before_work = self.last_id;
    }

    /// The holds on a lock that were tracked before the present use case began.
    pub fn of_lock_before_work(&self, lock: LockRef<'_>) -> Vec<TrackedId> {
        self.of_lock(lock).into_iter().filter(|id| *id <= self.last_before_work).collect()
    }

    /// Begins to track a hold. It is bound to no connection, and its client knows it.
    pub fn add(&mut self, lock: LockId, owner: OwnerId, hold: Hold) -> TrackedId {
        self.last_id += 1;
        let id = self.last_id;
        let of_lock = self.by_lock.entry(lock.clone()).or_default();
        if hold == Hold::Write {
            of_lock.writer = Some(owner.clone());
        }
        of_lock.owners.entry(owner.clone()).or_default().push(id);
        let (session, delivery, is_lost) = (None, Delivery::Delivered, false);
        self.by_id.insert(id, Tracked { lock, owner, hold, session, delivery, is_lost });
        id
    }

    /// A tracked hold. None: it has ended.
    pub fn get(&self, id: TrackedId) -> Option<&Tracked> {
        self.by_id.get(&id)
    }

    /// Changes the number or the kind of a hold.
    pub fn set_hold(&mut self, id: TrackedId, hold: Hold) {
        if let Some(tracked) = self.by_id.get_mut(&id) {
            tracked.hold = hold;
        }
    }

    /// Changes whether the client knows of the hold.
    pub fn set_delivery(&mut self, id: TrackedId, delivery: Delivery) {
        if let Some(tracked) = self.by_id.get_mut(&id) {
            tracked.delivery = delivery;
        }
    }

    /// Changes whether the hold is to be returned.
    pub fn set_lost(&mut self, id: TrackedId, is_lost: bool) {
        if let Some(tracked) = self.by_id.get_mut(&id) {
            tracked.is_lost = is_lost;
        }
    }

    /// Binds a hold to another connection, or to none. A hold that gets bound is not to be returned
    /// any more.
    pub fn bind(&mut self, id: TrackedId, session: Option<Session>) {
        let Some(tracked) = self.by_id.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut tracked.session, session);
        tracked.is_lost &= session.is_none();
        let client = |session: Option<Session>| session.map(|session| session.client);
        if client(before) == client(session) {
            return;
        }
        self.forget_client(id, before);
        if let Some(session) = session {
            self.by_client.entry(session.client).or_default().insert(id);
        }
    }

    /// Stops tracking a hold that has ended or needs it no more.
    pub fn remove(&mut self, id: TrackedId) -> Option<Tracked> {
        let tracked = self.by_id.remove(&id)?;
        self.forget_client(id, tracked.session);
        if let Some(lock) = self.by_lock.get_mut(&tracked.lock) {
            if let Some(ids) = lock.owners.get_mut(&tracked.owner) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    lock.owners.remove(&tracked.owner);
                }
            }
            if lock.owners.is_empty() {
                self.by_lock.remove(&tracked.lock);
                give_room_back(&mut self.by_lock);
            }
        }
        give_room_back(&mut self.by_id);
        Some(tracked)
    }

    fn forget_client(&mut self, id: TrackedId, session: Option<Session>) {
        let Some(Session { client, .. }) = session else {
            return;
        };
        if let Some(ids) = self.by_client.get_mut(&client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_client.remove(&client);
                give_room_back(&mut self.by_client);
            }
        }
    }

    /// The holds that are bound to a client's connection.
    pub fn of_client(&self, client: u64) -> impl Iterator<Item = TrackedId> + '_ {
        self.by_client.get(&client).into_iter().flatten().copied()
    }

    /// Whether any hold on the lock is tracked.
    pub fn has(&self, lock: LockRef<'_>) -> bool {
        !self.is_empty() && self.by_lock.contains_key(&lock)
    }

    /// The tracked holds on a lock.
    pub fn of_lock(&self, lock: LockRef<'_>) -> Vec<TrackedId> {
        let owners = self.by_lock.get(&lock).into_iter().flat_map(|of| of.owners.values());
        owners.flatten().copied().collect()
    }

    /// An owner's tracked holds on a lock, the oldest first.
    pub fn of_owner(&self, lock: LockRef<'_>, owner: &[u8]) -> &[TrackedId] {
        let ids = self.by_lock.get(&lock).and_then(|of| of.owners.get(owner));
        ids.map_or(&[], SmallVec::as_slice)
    }

    /// An owner's tracked holds on a lock with their data, the oldest first.
    pub fn holds_of<'t>(
        &'t self,
        lock: LockRef<'_>,
        owner: &[u8],
    ) -> impl DoubleEndedIterator<Item = (TrackedId, &'t Tracked)> {
        let ids = self.of_owner(lock, owner).iter();
        ids.filter_map(|id| Some((*id, self.by_id.get(id)?)))
    }

    /// The last owner whose write hold on the lock was tracked. The hold may have ended.
    pub fn writer(&self, lock: LockRef<'_>) -> Option<&OwnerId> {
        self.by_lock.get(&lock)?.writer.as_ref()
    }

    /// Marks the holds on a lock for a comparison with the keys, after an external change.
    pub fn mark_doubtful(&mut self, lock: LockRef<'_>) {
        if !self.is_empty() {
            if let Some(of) = self.by_lock.get_mut(&lock) {
                of.is_doubtful = true;
            }
        }
    }

    /// Returns the owners whose holds on a lock are marked for a comparison, and clears the mark.
    pub fn take_doubtful_owners(&mut self, lock: LockRef<'_>) -> Vec<OwnerId> {
        let Some(of) = self.by_lock.get_mut(&lock).filter(|of| of.is_doubtful) else {
            return Vec::new();
        };
        of.is_doubtful = false;
        of.owners.keys().cloned().collect()
    }

    /// The locks of a database that have tracked holds. None: of all databases.
    pub fn locks(&self, db: Option<i32>) -> Vec<LockId> {
        self.by_lock.keys().filter(|lock| db.is_none_or(|db| lock.db == db)).cloned().collect()
    }

    /// Moves the holds of locks that got another name or database. All moves happen at once,
    /// because two locks may be exchanged. Holds under the new names must be removed before, or be
    /// moved, too.
    pub fn relocate(&mut self, moves: impl IntoIterator<Item = (LockId, LockId)>) {
        let taken: Vec<_> = moves
            .into_iter()
            .filter_map(|(from, to)| Some((self.by_lock.remove(&from)?, to)))
            .collect();
        for (of, to) in taken {
            for id in of.owners.values().flatten() {
                if let Some(tracked) = self.by_id.get_mut(id) {
                    tracked.lock = to.clone();
                }
            }
            self.by_lock.insert(to, of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(db: i32, name: &str) -> LockId {
        LockId::from(LockRef { db, name: name.as_bytes() })
    }

    fn add_bound(all: &mut TrackedHolds, lock: &LockId, owner: &str, client: u64) -> TrackedId {
        let id = all.add(lock.clone(), owner.as_bytes().into(), Hold::Write);
        all.bind(id, Some(Session { client, lease: 1_000, due: Moment::PAST }));
        id
    }

    #[test]
    fn an_id_is_never_used_again() {
        let (mut all, lock) = (TrackedHolds::default(), lock(0, "k"));
        let first = add_bound(&mut all, &lock, "a", 1);
        assert!(all.remove(first).is_some());
        let second = add_bound(&mut all, &lock, "a", 1);
        assert_ne!(first, second);
        assert!(all.get(first).is_none());
        assert!(all.remove(first).is_none());
        assert_eq!(all.of_owner(lock.get(), b"a"), [second]);
    }

    #[test]
    fn a_hold_is_found_by_its_connection_and_its_lock_until_it_ends() {
        let (mut all, lock) = (TrackedHolds::default(), lock(0, "k"));
        let id = add_bound(&mut all, &lock, "a", 1);
        all.bind(id, Some(Session { client: 2, lease: 5, due: Moment(9) }));
        assert_eq!(all.of_client(1).count(), 0);
        assert_eq!(all.of_client(2).collect::<Vec<_>>(), [id]);
        assert!(all.has(lock.get()));
        all.remove(id);
        assert_eq!((all.of_client(2).count(), all.sessions()), (0, 0));
        assert!(!all.has(lock.get()));
    }

    #[test]
    fn what_is_empty_takes_no_room() {
        let (mut all, lock) = (TrackedHolds::default(), lock(0, "k"));
        let ids: Vec<_> = (0..10_000).map(|n| add_bound(&mut all, &lock, "a", n)).collect();
        for id in ids.into_iter().rev() {
            all.remove(id);
        }
        assert!(all.by_id.capacity() < 100, "{}", all.by_id.capacity());
        assert!(all.by_client.capacity() < 100, "{}", all.by_client.capacity());
    }

    #[test]
    fn locks_change_places() {
        let mut all = TrackedHolds::default();
        let (here, there, third) = (lock(0, "k"), lock(1, "k"), lock(0, "x"));
        let one = add_bound(&mut all, &here, "a", 1);
        let two = add_bound(&mut all, &there, "b", 2);
        all.relocate([(here.clone(), there.clone()), (there.clone(), here.clone())]);
        assert_eq!(all.of_owner(there.get(), b"a"), [one]);
        assert_eq!(all.of_owner(here.get(), b"b"), [two]);
        all.relocate([(here.clone(), third.clone())]);
        assert_eq!(all.get(two).map(|tracked| tracked.lock.clone()), Some(third.clone()));
        assert!(!all.has(here.get()));
        all.remove(two);
        assert!(!all.has(third.get()));
    }
}
