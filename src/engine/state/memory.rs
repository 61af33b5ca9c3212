//! What is remembered of each lock.
//!
//! There may be millions of locks, so an entry is small. Each database has one list of entries, and
//! tables that map a name to a place in the list. So a database can be emptied or exchanged with
//! another in one step.

use super::clock::Moment;
use super::readers::Readers;
use super::slab::Slab;
use crate::core::{Millis, Mode, OwnerId, Token};
use crate::store::LockRef;
use hashbrown::{DefaultHashBuilder, HashTable};
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
    /// The mode at the last snapshot. None: the lock was free.
    pub mode: Option<Mode>,
    /// The lock came from another name or database, and was not refreshed since.
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
}

/// The locks of one database.
#[derive(Default)]
pub struct Locks {
    known: Slab<Known>,
    names: Names,
}

/// The number of tables for names. Each grows and shrinks by itself, so no command waits until all
/// names have moved.
const TABLES: usize = 256;

/// Maps a name to an index in the list.
struct Names([HashTable<NameEntry>; TABLES]);

/// An index in the list, with the hash of the lock's name. With the hash a table can grow without
/// reading the names.
#[derive(Clone, Copy, Debug)]
struct NameEntry {
    hash: u32,
    number: u32,
}

impl Default for Names {
    fn default() -> Names {
        Names(std::array::from_fn(|_| HashTable::new()))
    }
}

impl Names {
    fn table(&self, hash: u32) -> &HashTable<NameEntry> {
        &self.0[hash as usize % TABLES]
    }

    fn table_mut(&mut self, hash: u32) -> &mut HashTable<NameEntry> {
        &mut self.0[hash as usize % TABLES]
    }

    fn add(&mut self, entry: NameEntry) {
        let table = self.table_mut(entry.hash);
        table.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
    }

    fn remove(&mut self, entry: NameEntry) {
        let table = self.table_mut(entry.hash);
        let is_same = |other: &NameEntry| other.number == entry.number;
        if let Ok(entry) = table.find_entry(spread(entry.hash), is_same) {
            entry.remove();
        }
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |entry| spread(entry.hash));
        }
    }

    /// Frees one table. False if all are freed.
    fn drop_table(&mut self) -> bool {
        let table = self.0.iter_mut().find(|table| table.capacity() > 0);
        table.map(|table| *table = HashTable::new()).is_some()
    }

    /// The lock of this entry is at the index `to` now.
    fn set_number(&mut self, entry: NameEntry, to: u32) {
        let is_same = |other: &NameEntry| other.number == entry.number;
        if let Some(entry) = self.table_mut(entry.hash).find_mut(spread(entry.hash), is_same) {
            entry.number = to;
        }
    }
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
        let found = self.find(lock);
        let LockRef { db, name } = lock;
        let index = index(db).unwrap_or(0);
        if self.dbs.len() <= index {
            self.dbs.resize_with(index + 1, || None);
        }
        let Locks { known, names } = &mut **self.dbs[index].get_or_insert_default();
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
        (place, known.get_or_insert_with(number, || Known::new(name, hash(&self.hasher, name))))
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

    fn locks(&self, db: i32) -> Option<&Locks> {
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
        let is_found = |entry: &NameEntry| {
            let known = || locks.known.get(entry.number);
            entry.hash == hash && known().is_some_and(|known| known.name.as_slice() == name)
        };
        let entry = locks.names.table(hash).find(spread(hash), is_found).ok_or(hash)?;
        let place = Place { db, number: entry.number };
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
            name: name.into(),
            due: NEVER,
            token: None,
            readers: None,
            last_owner: None,
            hash,
            holds: 0,
            mode: None,
            needs_refresh: false,
        }
    }
}

fn hash(hasher: &DefaultHashBuilder, name: &[u8]) -> u32 {
    hasher.hash_one(name) as u32
}

/// Spreads the 32 bits over 64: the table uses the high bits, too.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn index(db: i32) -> Option<usize> {
    usize::try_from(db).ok()
}
