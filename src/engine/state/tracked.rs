//! The holds that memory has a reason to tell from the owner's others: they are
//! bound to a connection, or they were granted to a waiter whose answer is on its
//! way.
//!
//! Each is tracked from its grant to its end, whatever its number is meanwhile and
//! in whichever lock its keys are. Its id is never used again, so who keeps the id
//! of a hold that has ended can touch no later one.

use super::clock::Moment;
use super::memory::LockId;
use crate::core::{give_room_back, Kind, Millis, OwnerId, Token};
use crate::store::LockRef;
use hashbrown::{Equivalent, HashMap};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Names a tracked hold, for ever.
pub type TrackedId = u64;

/// The tracked holds of one owner on one lock. Most have one.
pub type Ids = SmallVec<[TrackedId; 2]>;

/// What tells a hold from the others of its owner now. Write holds have no
/// numbers: any of them is like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The read hold of this number.
    Read(u64),
    /// A write hold.
    Write,
}

impl Hold {
    /// Its kind.
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
    /// The hold, as it was called then.
    pub hold: Hold,
    /// Whether the hold is new: with ONCE the owner may have had it already.
    pub is_new: bool,
    /// The fencing token that came with it.
    pub token: Option<Token>,
    /// The same hold for as long as it lives, where it is tracked.
    pub tracked: Option<TrackedId>,
}

/// The connection that a hold is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The client's id.
    pub client: u64,
    /// For how long the hold is renewed each time, in ms.
    pub lease: Millis,
    /// When it is to be renewed.
    pub due: Moment,
}

/// Whether the client that was granted a hold knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It does.
    Delivered,
    /// The answer is on its way. If it is lost, the hold is taken back.
    InFlight,
    /// The same, but somebody else relies on the hold since, by ONCE or DOWNGRADE: it
    /// stays, unless it is bound to a connection that closes.
    ReliedOn,
}

/// A hold that is tracked.
#[derive(Clone, Debug)]
pub struct Tracked {
    pub lock: LockId,
    pub owner: OwnerId,
    pub hold: Hold,
    pub session: Option<Session>,
    pub delivery: Delivery,
    /// Its client is gone, and it is to be given back, unless somebody relies on it or
    /// binds it before that can be done.
    pub is_lost: bool,
}

/// All of them.
#[derive(Default)]
pub struct TrackedHolds {
    last: TrackedId,
    /// The last that was added before the work that is being done, or was done last.
    before: TrackedId,
    all: HashMap<TrackedId, Tracked>,
    of_client: HashMap<u64, BTreeSet<TrackedId>>,
    of_lock: HashMap<LockId, OfLock>,
}

/// Those of one lock.
#[derive(Default)]
struct OfLock {
    owners: HashMap<OwnerId, Ids>,
    /// Whose write holds are among them. A lock has one writer.
    writer: Option<OwnerId>,
    /// Whether somebody else has changed the lock since it was looked at.
    in_doubt: bool,
}

impl Equivalent<LockId> for LockRef<'_> {
    fn equivalent(&self, id: &LockId) -> bool {
        *self == id.get()
    }
}

impl TrackedHolds {
    /// Whether there are none, so that nobody need look.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many holds are bound to a connection.
    pub fn sessions(&self) -> usize {
        self.of_client.values().map(BTreeSet::len).sum()
    }

    /// Work begins: what is added from now on is newer than what is noted meanwhile.
    pub fn begin_work(&mut self) {
        self.before = self.last;
    }

    /// The holds on a lock that were tracked before the work began.
    pub fn of_lock_before(&self, lock: LockRef<'_>) -> Vec<TrackedId> {
        self.of_lock(lock).into_iter().filter(|id| *id <= self.before).collect()
    }

    /// Begins to track a hold, which is bound to nobody, and whose client knows of it.
    pub fn add(&mut self, lock: LockId, owner: OwnerId, hold: Hold) -> TrackedId {
        self.last += 1;
        let id = self.last;
        let of_lock = self.of_lock.entry(lock.clone()).or_default();
        if hold == Hold::Write {
            of_lock.writer = Some(owner.clone());
        }
        of_lock.owners.entry(owner.clone()).or_default().push(id);
        let (session, delivery, is_lost) = (None, Delivery::Delivered, false);
        self.all.insert(id, Tracked { lock, owner, hold, session, delivery, is_lost });
        id
    }

    /// One of them, while the hold lives.
    pub fn get(&self, id: TrackedId) -> Option<&Tracked> {
        self.all.get(&id)
    }

    /// The hold has another number or kind from now on.
    pub fn rename(&mut self, id: TrackedId, hold: Hold) {
        if let Some(tracked) = self.all.get_mut(&id) {
            tracked.hold = hold;
        }
    }

    /// Whether its client knows of it has changed.
    pub fn set_delivery(&mut self, id: TrackedId, delivery: Delivery) {
        if let Some(tracked) = self.all.get_mut(&id) {
            tracked.delivery = delivery;
        }
    }

    /// Its client is gone, or somebody else wants to keep it.
    pub fn set_lost(&mut self, id: TrackedId, is_lost: bool) {
        if let Some(tracked) = self.all.get_mut(&id) {
            tracked.is_lost = is_lost;
        }
    }

    /// Binds a hold to another connection, or to none.
    pub fn bind(&mut self, id: TrackedId, session: Option<Session>) {
        let Some(tracked) = self.all.get_mut(&id) else {
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
            self.of_client.entry(session.client).or_default().insert(id);
        }
    }

    /// Stops tracking a hold, which has ended or is like any other now.
    pub fn remove(&mut self, id: TrackedId) -> Option<Tracked> {
        let tracked = self.all.remove(&id)?;
        self.forget_client(id, tracked.session);
        if let Some(lock) = self.of_lock.get_mut(&tracked.lock) {
            if let Some(ids) = lock.owners.get_mut(&tracked.owner) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    lock.owners.remove(&tracked.owner);
                }
            }
            if lock.owners.is_empty() {
                self.of_lock.remove(&tracked.lock);
                give_room_back(&mut self.of_lock);
            }
        }
        give_room_back(&mut self.all);
        Some(tracked)
    }

    fn forget_client(&mut self, id: TrackedId, session: Option<Session>) {
        let Some(Session { client, .. }) = session else {
            return;
        };
        if let Some(ids) = self.of_client.get_mut(&client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_client.remove(&client);
                give_room_back(&mut self.of_client);
            }
        }
    }

    /// The holds that are bound to a connection.
    pub fn of_client(&self, client: u64) -> impl Iterator<Item = TrackedId> + '_ {
        self.of_client.get(&client).into_iter().flatten().copied()
    }

    /// Whether a hold on the lock is tracked.
    pub fn has(&self, lock: LockRef<'_>) -> bool {
        !self.is_empty() && self.of_lock.contains_key(&lock)
    }

    /// Those of a lock.
    pub fn of_lock(&self, lock: LockRef<'_>) -> Vec<TrackedId> {
        let owners = self.of_lock.get(&lock).into_iter().flat_map(|of| of.owners.values());
        owners.flatten().copied().collect()
    }

    /// Those of an owner on a lock, the oldest first.
    pub fn of_owner(&self, lock: LockRef<'_>, owner: &[u8]) -> &[TrackedId] {
        let ids = self.of_lock.get(&lock).and_then(|of| of.owners.get(owner));
        ids.map_or(&[], SmallVec::as_slice)
    }

    /// The same, with what is known of each.
    pub fn holds_of<'t>(
        &'t self,
        lock: LockRef<'_>,
        owner: &[u8],
    ) -> impl DoubleEndedIterator<Item = (TrackedId, &'t Tracked)> {
        let ids = self.of_owner(lock, owner).iter();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// The owner whose write holds on a lock are tracked.
    pub fn writer(&self, lock: LockRef<'_>) -> Option<&OwnerId> {
        self.of_lock.get(&lock)?.writer.as_ref()
    }

    /// Somebody else has changed the lock: what is believed of its holds may not
    /// be true.
    pub fn doubt(&mut self, lock: LockRef<'_>) {
        if !self.is_empty() {
            if let Some(of) = self.of_lock.get_mut(&lock) {
                of.in_doubt = true;
            }
        }
    }

    /// Takes the owners whose holds are to be compared with the keys.
    pub fn take_doubtful(&mut self, lock: LockRef<'_>) -> Vec<OwnerId> {
        let Some(of) = self.of_lock.get_mut(&lock).filter(|of| of.in_doubt) else {
            return Vec::new();
        };
        of.in_doubt = false;
        of.owners.keys().cloned().collect()
    }

    /// The locks of a database, or of all, that have tracked holds.
    pub fn locks(&self, db: Option<i32>) -> Vec<LockId> {
        self.of_lock.keys().filter(|lock| db.is_none_or(|db| lock.db == db)).cloned().collect()
    }

    /// The keys of locks have got other names, or are in other databases: all at
    /// once, for two may have changed places. What was known under the new names
    /// must have been removed, or be moved too.
    pub fn relocate(&mut self, moves: impl IntoIterator<Item = (LockId, LockId)>) {
        let taken: Vec<_> = moves
            .into_iter()
            .filter_map(|(from, to)| Some((self.of_lock.remove(&from)?, to)))
            .collect();
        for (of, to) in taken {
            for id in of.owners.values().flatten() {
                if let Some(tracked) = self.all.get_mut(id) {
                    tracked.lock = to.clone();
                }
            }
            self.of_lock.insert(to, of);
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
        assert!(all.all.capacity() < 100, "{}", all.all.capacity());
        assert!(all.of_client.capacity() < 100, "{}", all.of_client.capacity());
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
