//! What is remembered of each lock.
//!
//! There may be millions of them, so it is little, and in one place: for each
//! database tables lead from a name to a place in one list. A database that is
//! emptied or swapped with another is so here at once, however many locks it has.

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
    /// The same, borrowed.
    pub fn get(&self) -> LockRef<'_> {
        LockRef { db: self.db, name: &self.name }
    }
}

impl From<LockRef<'_>> for LockId {
    fn from(LockRef { db, name }: LockRef<'_>) -> LockId {
        LockId { db, name: name.into() }
    }
}

/// A lock's name. A short one, as most are, needs no room of its own, and is
/// read where the rest is.
type LockName = SmallVec<[u8; 24]>;

/// Where a lock is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The database.
    pub db: i32,
    /// Its number there.
    pub number: u32,
}

/// What is remembered of a lock that is held or waited for.
#[derive(Debug)]
pub struct Known {
    name: LockName,
    due: Moment,
    token: Option<Box<OfTenure>>,
    /// Its readers, when there are many.
    pub readers: Option<Box<Readers>>,
    last: Option<Box<OwnerId>>,
    /// The hash of its name.
    hash: u32,
    /// How many live holds it had when last looked at, to be told when all of
    /// them lapse.
    pub holds: u32,
    /// The mode that it had when last looked at; None: free.
    pub mode: Option<Mode>,
    /// Whether it came from another name or database, and was not looked at here yet.
    pub is_unseen: bool,
}

/// The last fencing token of a tenure, which is an owner's.
#[derive(Clone, Debug)]
struct OfTenure {
    owner: OwnerId,
    token: Token,
}

/// No alarm is set. A millisecond that will never come, to save room.
const NEVER: Moment = Moment(Millis::MIN);

impl Known {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a single write hold makes it.
    pub fn is_written_once(&self) -> bool {
        self.holds == 1 && self.mode == Some(Mode::Write)
    }

    /// When its alarm rings: not later than the first of its holds ends.
    pub fn due(&self) -> Option<Moment> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Remembers when it rings.
    pub fn set_due(&mut self, due: Option<Moment>) {
        self.due = due.unwrap_or(NEVER);
    }

    /// The owner whose hold ends last, where announcements name owners.
    pub fn last_owner(&self) -> Option<&OwnerId> {
        self.last.as_deref()
    }

    /// Remembers it.
    pub fn set_last_owner(&mut self, last: Option<OwnerId>) {
        self.last = last.map(Box::new);
    }

    /// The fencing token that this owner was given last, since it began to write.
    pub fn token_of(&self, owner: &[u8]) -> Option<Token> {
        let of_tenure = self.token.as_ref().filter(|of| *of.owner == *owner);
        of_tenure.map(|of| of.token)
    }

    /// The last token that is known, whoever was given it; 0: none is.
    pub fn last_token(&self) -> Token {
        self.token.as_ref().map_or(0, |of| of.token)
    }

    /// Remembers the token of the owner who writes.
    pub fn set_token(&mut self, owner: &[u8], token: Token) {
        match &mut self.token {
            Some(of) if *of.owner == *owner => of.token = token,
            other => *other = Some(Box::new(OfTenure { owner: owner.into(), token })),
        }
    }

    /// The tenure is over.
    pub fn forget_token(&mut self) {
        self.token = None;
    }
}

/// What is remembered of all locks.
#[derive(Default)]
pub struct Memory {
    dbs: Vec<Option<Box<Locks>>>,
    hasher: DefaultHashBuilder,
    /// The last that was found: a command asks for one lock several times.
    last: Cell<Option<Place>>,
    /// Whether the list of a database may be worth packing.
    sparse: bool,
}

/// What is remembered of the locks of one database.
#[derive(Default)]
pub struct Locks {
    known: Slab<Known>,
    names: Names,
}

/// In how many tables the names are. Each is grown and shrunk by itself, so that
/// no command waits for all names to be moved.
const TABLES: usize = 256;

/// Leads from a name to a place.
struct Names([HashTable<Found>; TABLES]);

/// A place in a table, with the hash of its lock's name: to make the table
/// larger without reading each name.
#[derive(Clone, Copy, Debug)]
struct Found {
    hash: u32,
    number: u32,
}

impl Default for Names {
    fn default() -> Names {
        Names(std::array::from_fn(|_| HashTable::new()))
    }
}

impl Names {
    fn of(&self, hash: u32) -> &HashTable<Found> {
        &self.0[hash as usize % TABLES]
    }

    fn of_mut(&mut self, hash: u32) -> &mut HashTable<Found> {
        &mut self.0[hash as usize % TABLES]
    }

    fn add(&mut self, found: Found) {
        let table = self.of_mut(found.hash);
        table.insert_unique(spread(found.hash), found, |found| spread(found.hash));
    }

    fn remove(&mut self, found: Found) {
        let table = self.of_mut(found.hash);
        let is_it = |other: &Found| other.number == found.number;
        if let Ok(entry) = table.find_entry(spread(found.hash), is_it) {
            entry.remove();
        }
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |found| spread(found.hash));
        }
    }

    /// Drops one of the tables. False when all are empty.
    fn drop_table(&mut self) -> bool {
        let table = self.0.iter_mut().find(|table| table.capacity() > 0);
        table.map(|table| *table = HashTable::new()).is_some()
    }

    /// A lock is at another place now.
    fn moved(&mut self, found: Found, to: u32) {
        let is_it = |other: &Found| other.number == found.number;
        if let Some(entry) = self.of_mut(found.hash).find_mut(spread(found.hash), is_it) {
            entry.number = to;
        }
    }
}

impl Memory {
    /// Whether nothing was ever remembered.
    pub fn is_empty(&self) -> bool {
        self.dbs.is_empty()
    }

    /// What is remembered of a lock.
    pub fn get(&self, lock: LockRef<'_>) -> Option<&Known> {
        self.at(self.find(lock).ok()?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, lock: LockRef<'_>) -> Option<&mut Known> {
        self.at_mut(self.find(lock).ok()?)
    }

    /// Where a lock is remembered, if it is.
    pub fn place(&self, lock: LockRef<'_>) -> Option<Place> {
        self.find(lock).ok()
    }

    /// What is remembered there.
    pub fn at(&self, place: Place) -> Option<&Known> {
        self.locks(place.db)?.known.get(place.number)
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, place: Place) -> Option<&mut Known> {
        self.dbs.get_mut(index(place.db)?)?.as_mut()?.known.get_mut(place.number)
    }

    /// What is remembered of a lock, with its place; a lock that nothing is known of becomes one
    /// that is free.
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
                names.add(Found { hash, number });
                number
            },
            |place| place.number,
        );
        let place = Place { db, number };
        self.last.set(Some(place));
        (place, known.get_or_insert_with(number, || Known::new(name, hash(&self.hasher, name))))
    }

    /// Forgets of all locks whose hold ends last.
    pub fn forget_last_owners(&mut self) {
        let locks = self.dbs.iter_mut().flatten();
        locks.flat_map(|locks| locks.known.values_mut()).for_each(|known| known.last = None);
    }

    /// Forgets the lock that is remembered there.
    pub fn remove(&mut self, place: Place) {
        let locks = index(place.db).and_then(|index| self.dbs.get_mut(index)?.as_mut());
        if let Some(locks) = locks {
            if let Some(known) = locks.known.remove(place.number) {
                locks.names.remove(Found { hash: known.hash, number: place.number });
                self.sparse |= locks.known.is_sparse();
            }
        }
    }

    /// Takes out all that is remembered of a database: it is as if nothing had
    /// been.
    pub fn take(&mut self, db: i32) -> Option<Box<Locks>> {
        self.last.set(None);
        self.dbs.get_mut(index(db)?)?.take()
    }

    /// The databases of which something is remembered.
    pub fn dbs(&self) -> impl Iterator<Item = i32> + use<> {
        0..i32::try_from(self.dbs.len()).unwrap_or(i32::MAX)
    }

    /// The content of these two databases has changed places.
    pub fn swap(&mut self, one: i32, other: i32) {
        self.last.set(None);
        if let (Some(one), Some(other)) = (index(one), index(other)) {
            let larger = one.max(other);
            if self.dbs.len() <= larger {
                self.dbs.resize_with(larger + 1, || None);
            }
            self.dbs.swap(one, other);
        }
    }

    /// Whether the list of a database may be worth packing.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// A database whose locks lie scattered in more room than they need.
    pub fn find_sparse(&mut self) -> Option<i32> {
        let mut dbs = self.dbs.iter().zip(0..);
        let found = dbs.find_map(|(locks, db)| locks.as_ref()?.known.is_sparse().then_some(db));
        self.sparse = found.is_some();
        found
    }

    /// Gives a little of a sparse list's room back. From which place to which one a lock was
    /// moved for it, and how many places there are.
    pub fn pack(&mut self, db: i32) -> (Option<(u32, u32)>, usize) {
        self.last.set(None);
        let Some(locks) = index(db).and_then(|index| self.dbs.get_mut(index)?.as_mut()) else {
            return (None, 0);
        };
        let moved = locks.known.pack();
        if let Some((number, to)) = moved {
            if let Some(known) = locks.known.get(to) {
                locks.names.moved(Found { hash: known.hash, number }, to);
            }
        }
        (moved, locks.known.places())
    }

    fn locks(&self, db: i32) -> Option<&Locks> {
        self.dbs.get(index(db)?)?.as_deref()
    }

    /// Where a lock is remembered; if it is not, the hash of its name.
    fn find(&self, lock: LockRef<'_>) -> Result<Place, u32> {
        let LockRef { db, name } = lock;
        if let Some(place) = self.last.get().filter(|place| place.db == db) {
            if self.at(place).is_some_and(|known| known.name.as_slice() == name) {
                return Ok(place);
            }
        }
        let hash = hash(&self.hasher, name);
        let locks = self.locks(db).ok_or(hash)?;
        let is_found = |found: &Found| {
            let known = || locks.known.get(found.number);
            found.hash == hash && known().is_some_and(|known| known.name.as_slice() == name)
        };
        let found = locks.names.of(hash).find(spread(hash), is_found).ok_or(hash)?;
        let place = Place { db, number: found.number };
        self.last.set(Some(place));
        Ok(place)
    }
}

impl Locks {
    /// Drops a part of it. False when nothing is left.
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
            last: None,
            hash,
            holds: 0,
            mode: None,
            is_unseen: false,
        }
    }
}

fn hash(hasher: &DefaultHashBuilder, name: &[u8]) -> u32 {
    hasher.hash_one(name) as u32
}

/// The table wants all bits of a hash to differ.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn index(db: i32) -> Option<usize> {
    usize::try_from(db).ok()
}
