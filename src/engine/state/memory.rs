//! What is remembered of each lock.
//!
//! There may be millions of locks, so an entry is small. Each database has one list of entries, and
//! tables that map a name to a place in the list. So a database can be emptied or exchanged with
//! another in one step.

use super::clock::Moment;
use super::names::{NameEntry, Names};
use super::readers::Readers;
use super::slab::Slab;
use super::tenure::Tenure;
use crate::core::{Millis, Mode, OwnerId, Token};
use crate::store::LockRef;
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::sync::Arc;

/// A lock: its database and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    pub db: i32,
    pub name: Arc<[u8]>,
}

impl LockId {
    /// The lock as a [`LockRef`].
    pub fn get(&self) -> LockRef<'_> {
        LockRef { db: self.db, name: &self.name }
    }
}

impl From<LockRef<'_>> for LockId {
    fn from(LockRef { db, name }: LockRef<'_>) -> LockId {
        LockId { db, name: name.into() }
    }
}

/// The name of a lock. Up to 24 bytes, as in most names, need no allocation.
type InlineName = SmallVec<[u8; 24]>;

/// The place of a lock in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The database.
    pub db: i32,
    /// The index in the list of that database.
    pub number: u32,
}

/// What is remembered of a lock that is held or waited for.
#[derive(Debug)]
pub struct Known {
    name: InlineName,
    due: Moment,
    token: Option<Box<WriterToken>>,
    /// The ends of its readers, if it has many.
    pub readers: Option<Box<Readers>>,
    last_owner: Option<Box<OwnerId>>,
    /// The hash of its name.
    hash: u32,
    /// The number of live holds at the last snapshot. If the whole lock lapses, so many holds have
    /// lapsed.
    pub holds: u32,
    /// Since when it is held. A free lock has a tenure only between its release and its hand-off to
    /// a waiter, or until the refresh that follows an external change.
    pub tenure: Tenure,
    /// The mode at the last snapshot. None: the lock was free.
    mode: Option<Mode>,
    /// The holds may have been replaced by others since the last snapshot: the lock came from
    /// another name or database, its key was deleted or overwritten, or it lapsed.
    pub needs_refresh: bool,
}

/// The last fencing token of the current writer.
#[derive(Clone, Debug)]
struct WriterToken {
    owner: OwnerId,
    token: Token,
}

/// The value of `due` without a timer: a ms that never comes. It makes the entry smaller than an
/// `Option`.
const NEVER: Moment = Moment(Millis::MIN);

impl Known {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The mode at the last snapshot. None: the lock was free.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Whether one write hold is all that the lock has.
    pub fn has_single_write(&self) -> bool {
        self.holds == 1 && self.mode == Some(Mode::Write)
    }

    /// When the lock's timer fires. At the latest when the first of its holds ends.
    pub fn due(&self) -> Option<Moment> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Records when the lock's timer fires. The timer itself is in `Timers`.
    pub fn set_due(&mut self, due: Option<Moment>) {
        self.due = due.unwrap_or(NEVER);
    }

    /// The last-expiring owner, where announcements name owners.
    pub fn last_owner(&self) -> Option<&OwnerId> {
        self.last_owner.as_deref()
    }

    pub fn set_last_owner(&mut self, last: Option<OwnerId>) {
        self.last_owner = last.map(Box::new);
    }

    /// The last token of this owner, if it is the current writer.
    pub fn token_of(&self, owner: &[u8]) -> Option<Token> {
        let of_owner = self.token.as_ref().filter(|token| *token.owner == *owner);
        of_owner.map(|token| token.token)
    }

    /// The last remembered token of any owner. 0: none.
    pub fn last_token(&self) -> Token {
        self.token.as_ref().map_or(0, |token| token.token)
    }

    /// Remembers the token of the current writer.
    pub fn set_token(&mut self, owner: &[u8], token: Token) {
        match &mut self.token {
            Some(current) if *current.owner == *owner => current.token = token,
            other => *other = Some(Box::new(WriterToken { owner: owner.into(), token })),
        }
    }

    /// Forgets the token: its owner does not write any more.
    pub fn forget_token(&mut self) {
        self.token = None;
    }
}

/// What is remembered of all locks.
#[derive(Default)]
pub struct Memory {
    dbs: Vec<Option<Box<Locks>>>,
    hasher: DefaultHashBuilder,
    /// The place that was found last. A command often needs the same lock again.
    last_found: Cell<Option<Place>>,
    /// Whether a list may be worth packing. `find_sparse` checks it.
    may_be_sparse: bool,
    /// The number of lists that were begun.
    lists: u32,
}

/// The locks of one database.
#[derive(Default)]
pub struct Locks {
    pub(super) known: Slab<Known>,
    names: Names,
    /// The number of locks that have a mode.
    held: usize,
    /// The number of this list. A walk notices by it that the list was replaced.
    pub(super) list: u32,
}

impl Memory {
    /// Whether any lock was ever remembered.
    pub fn was_used(&self) -> bool {
        !self.dbs.is_empty()
    }

    /// What is remembered of a lock.
    pub fn get(&self, lock: LockRef<'_>) -> Option<&Known> {
        self.at(self.find(lock).ok()?)
    }

    /// What is remembered of a lock, to change it.
    pub fn get_mut(&mut self, lock: LockRef<'_>) -> Option<&mut Known> {
        self.at_mut(self.find(lock).ok()?)
    }

    /// The place of a lock, if it is remembered.
    pub fn place(&self, lock: LockRef<'_>) -> Option<Place> {
        self.find(lock).ok()
    }

    /// What is remembered at a place.
    pub fn at(&self, place: Place) -> Option<&Known> {
        self.locks(place.db)?.known.get(place.number)
    }

    /// What is remembered at a place, to change it.
    pub fn at_mut(&mut self, place: Place) -> Option<&mut Known> {
        self.dbs.get_mut(index(place.db)?)?.as_mut()?.known.get_mut(place.number)
    }

    /// The place of a lock, and what is remembered of it. Adds an unknown lock as a free one.
    pub fn entry(&mut self, lock: LockRef<'_>) -> (Place, &mut Known) {
        let (place, known, _) = self.entry_and_count(lock);
        (place, known)
    }

    /// Like [`Memory::entry`], and sets the mode of the lock. Also returns the mode before.
    pub fn set_mode(
        &mut self,
        lock: LockRef<'_>,
        mode: Option<Mode>,
    ) -> (Place, &mut Known, Option<Mode>) {
        let (place, known, held) = self.entry_and_count(lock);
        let before = std::mem::replace(&mut known.mode, mode);
        *held = *held + usize::from(mode.is_some()) - usize::from(before.is_some());
        (place, known, before)
    }

    /// A known lock may be free, or others may hold it now: forgets its mode and its token. The
    /// next refresh ends its tenure.
    pub fn forget_mode(&mut self, lock: LockRef<'_>) {
        if self.get(lock).is_some() {
            let (_, known, _) = self.set_mode(lock, None);
            known.needs_refresh = true;
            known.forget_token();
        }
    }

    /// Another node has a known lock now: forgets its mode and its tenure.
    pub fn lose(&mut self, lock: LockRef<'_>) {
        if self.get(lock).is_some() {
            let (_, known, _) = self.set_mode(lock, None);
            known.tenure = Tenure::NONE;
        }
    }

    /// The number of locks that were held at their last snapshot.
    pub fn held(&self) -> usize {
        self.dbs.iter().flatten().map(|locks| locks.held).sum()
    }

    /// What [`Memory::entry`] returns, and the number of held locks of the database.
    fn entry_and_count(&mut self, lock: LockRef<'_>) -> (Place, &mut Known, &mut usize) {
        let found = self.find(lock);
        let LockRef { db, name } = lock;
        let index = index(db).unwrap_or(0);
        if self.dbs.len() <= index {
            self.dbs.resize_with(index + 1, || None);
        }
        let lists = &mut self.lists;
        let Locks { known, names, held, .. } = &mut **self.dbs[index].get_or_insert_with(|| {
            *lists = lists.wrapping_add(1);
            Box::new(Locks { list: *lists, ..Locks::default() })
        });
        let number = found.map_or_else(
            |hash| {
                let number = known.add(Known::new(name, hash));
                names.add(NameEntry { hash, number });
                number
            },
            |place| place.number,
        );
        let place = Place { db, number };
        self.last_found.set(Some(place));
        let hasher = &self.hasher;
        (place, known.get_or_insert_with(number, || Known::new(name, hash(hasher, name))), held)
    }

    /// Forgets the last-expiring owners of all locks.
    pub fn forget_last_owners(&mut self) {
        let locks = self.dbs.iter_mut().flatten();
        locks.flat_map(|locks| locks.known.values_mut()).for_each(|known| known.last_owner = None);
    }

    /// Forgets the lock at a place.
    pub fn remove(&mut self, place: Place) {
        let locks = index(place.db).and_then(|index| self.dbs.get_mut(index)?.as_mut());
        if let Some(locks) = locks {
            if let Some(known) = locks.known.remove(place.number) {
                locks.held -= usize::from(known.mode.is_some());
                locks.names.remove(NameEntry { hash: known.hash, number: place.number });
                self.may_be_sparse |= locks.known.is_sparse();
            }
        }
    }

    /// Removes and returns all locks of a database.
    pub fn take(&mut self, db: i32) -> Option<Box<Locks>> {
        self.last_found.set(None);
        self.dbs.get_mut(index(db)?)?.take()
    }

    /// All databases that may have remembered locks.
    pub fn dbs(&self) -> impl Iterator<Item = i32> + use<> {
        0..i32::try_from(self.dbs.len()).unwrap_or(i32::MAX)
    }

    /// Exchanges the locks of two databases.
    pub fn swap(&mut self, one: i32, other: i32) {
        self.last_found.set(None);
        if let (Some(one), Some(other)) = (index(one), index(other)) {
            let larger = one.max(other);
            if self.dbs.len() <= larger {
                self.dbs.resize_with(larger + 1, || None);
            }
            self.dbs.swap(one, other);
        }
    }

    /// Whether a list may be worth packing.
    pub fn is_sparse(&self) -> bool {
        self.may_be_sparse
    }

    /// A database whose list has too many free places.
    pub fn find_sparse(&mut self) -> Option<i32> {
        let mut dbs = self.dbs.iter().zip(0..);
        let sparse_db = dbs.find_map(|(locks, db)| locks.as_ref()?.known.is_sparse().then_some(db));
        self.may_be_sparse = sparse_db.is_some();
        sparse_db
    }

    /// Frees a little of the list of a database. Returns the old and the new index of a lock, if it
    /// moved one, and the number of places in the list.
    pub fn pack(&mut self, db: i32) -> (Option<(u32, u32)>, usize) {
        self.last_found.set(None);
        let Some(locks) = index(db).and_then(|index| self.dbs.get_mut(index)?.as_mut()) else {
            return (None, 0);
        };
        let moved = locks.known.pack();
        if let Some((number, to)) = moved {
            if let Some(known) = locks.known.get(to) {
                locks.names.set_number(NameEntry { hash: known.hash, number }, to);
            }
        }
        (moved, locks.known.places())
    }

    /// The locks of a database.
    pub(super) fn locks(&self, db: i32) -> Option<&Locks> {
        self.dbs.get(index(db)?)?.as_deref()
    }

    /// The place of a lock, or the hash of its name if it is not remembered.
    fn find(&self, lock: LockRef<'_>) -> Result<Place, u32> {
        let LockRef { db, name } = lock;
        if let Some(place) = self.last_found.get().filter(|place| place.db == db) {
            if self.at(place).is_some_and(|known| known.name.as_slice() == name) {
                return Ok(place);
            }
        }
        let hash = hash(&self.hasher, name);
        let locks = self.locks(db).ok_or(hash)?;
        let is_it = |number| {
            let known = locks.known.get(number);
            known.is_some_and(|known| known.name.as_slice() == name)
        };
        let number = locks.names.find(hash, is_it).ok_or(hash)?;
        let place = Place { db, number };
        self.last_found.set(Some(place));
        Ok(place)
    }
}

impl Locks {
    /// Frees a part of the locks. False if all of them are free.
    pub fn drop_some(&mut self) -> bool {
        self.known.drop_chunk() || self.names.drop_table()
    }
}

impl Known {
    fn new(name: &[u8], hash: u32) -> Known {
        Known {
            name: InlineName::from_slice(name),
            due: NEVER,
            token: None,
            readers: None,
            last_owner: None,
            hash,
            holds: 0,
            tenure: Tenure::NONE,
            mode: None,
            needs_refresh: false,
        }
    }
}

fn hash(hasher: &DefaultHashBuilder, name: &[u8]) -> u32 {
    hasher.hash_one(name) as u32
}

fn index(db: i32) -> Option<usize> {
    usize::try_from(db).ok()
}
