//! What is remembered of each lock.
//!
//! There may be millions of them, so it is little, and in one place: a table
//! for each database leads from a name to a place in one list.

use super::readers::Readers;
use crate::core::{Millis, Mode, OwnerId, Queue, Token};
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

/// A lock's name. A short one, as most are, needs no room of its own, and is
/// read where the rest is.
type Name = SmallVec<[u8; 24]>;

/// Where a lock is remembered, for as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u32);

/// What is remembered of a lock that is held or waited for.
#[derive(Debug)]
pub struct Known {
    name: Name,
    due: Millis,
    token: Token,
    /// Who waits for it.
    pub queue: Option<Box<Queue>>,
    /// Its readers, when there are many.
    pub readers: Option<Box<Readers>>,
    last: Option<Box<OwnerId>>,
    /// The hash of its name.
    hash: u32,
    db: i32,
    /// How many live holds it had when last looked at, to be told when all of
    /// them lapse.
    pub holds: u32,
    /// The mode that it had when last looked at; None: free.
    pub mode: Option<Mode>,
}

/// No alarm is set. A millisecond that will never come, to save room.
const NEVER: Millis = Millis::MIN;

/// No token was given: the first is 1.
const NO_TOKEN: Token = 0;

impl Known {
    /// Its id, to be shared.
    pub fn id(&self) -> LockId {
        LockId { db: self.db, name: self.name.as_slice().into() }
    }

    /// Its database.
    pub fn db(&self) -> i32 {
        self.db
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a single write hold makes it, and nobody waits for it.
    pub fn is_written_once(&self) -> bool {
        self.holds == 1 && self.mode == Some(Mode::Write) && self.queue.is_none()
    }

    /// When its alarm rings: not later than the first of its holds ends.
    pub fn due(&self) -> Option<Millis> {
        (self.due != NEVER).then_some(self.due)
    }

    /// Remembers when it rings.
    pub fn set_due(&mut self, due: Option<Millis>) {
        self.due = due.unwrap_or(NEVER);
    }

    /// The owner whose hold ends last, where announcements name owners.
    pub fn last(&self) -> Option<&OwnerId> {
        self.last.as_deref()
    }

    /// Remembers it.
    pub fn set_last(&mut self, last: Option<OwnerId>) {
        self.last = last.map(Box::new);
    }

    /// The fencing token that its writer was given last, since it began to write.
    pub fn token(&self) -> Option<Token> {
        (self.token != NO_TOKEN).then_some(self.token)
    }

    /// Remembers it.
    pub fn set_token(&mut self, token: Option<Token>) {
        self.token = token.unwrap_or(NO_TOKEN);
    }
}

/// What is remembered of all locks.
#[derive(Default)]
pub struct Memory {
    places: Vec<Option<Known>>,
    free: Vec<Place>,
    dbs: Vec<HashTable<Found>>,
    hasher: DefaultHashBuilder,
    /// The last that was found: a command asks for one lock several times.
    last: Cell<usize>,
}

/// A place in a table, with the hash of its lock's name: to make the table
/// larger without a look at each name.
#[derive(Clone, Copy, Debug)]
struct Found {
    hash: u32,
    place: Place,
}

impl Memory {
    /// Whether nothing was ever remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What is remembered of a lock.
    pub fn get(&self, db: i32, name: &[u8]) -> Option<&Known> {
        self.at(self.find(db, name).ok()?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<&mut Known> {
        self.at_mut(self.find(db, name).ok()?)
    }

    /// Where a lock is remembered, if it is.
    pub fn place(&self, db: i32, name: &[u8]) -> Option<Place> {
        self.find(db, name).ok()
    }

    /// What is remembered there.
    pub fn at(&self, place: Place) -> Option<&Known> {
        self.places.get(place.index())?.as_ref()
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, place: Place) -> Option<&mut Known> {
        self.places.get_mut(place.index())?.as_mut()
    }

    /// What is remembered of a lock, with its place; a lock that nothing is known of becomes one
    /// that is free.
    pub fn entry(&mut self, db: i32, name: &[u8]) -> (Place, &mut Known) {
        match self.find(db, name) {
            Err(hash) => self.add(Known::new(db, name, hash)),
            Ok(place) => {
                let known = || Known::new(db, name, hash(&self.hasher, name));
                (place, self.places[place.index()].get_or_insert_with(known))
            }
        }
    }

    /// Forgets of all locks whose hold ends last.
    pub fn forget_last_owners(&mut self) {
        for known in self.places.iter_mut().flatten() {
            known.last = None;
        }
    }

    /// Forgets the lock that is remembered there.
    pub fn remove(&mut self, place: Place) {
        let Some(known) = self.at(place) else {
            return;
        };
        let (db, hash) = (known.db, spread(known.hash));
        if let Some(locks) = index(db).and_then(|index| self.dbs.get_mut(index)) {
            if let Ok(found) = locks.find_entry(hash, |found| found.place == place) {
                found.remove();
            }
        }
        self.places[place.index()] = None;
        self.free.push(place);
    }

    /// All locks of a database, or of all.
    pub fn locks(&self, db: Option<i32>) -> impl Iterator<Item = &Known> {
        self.places.iter().flatten().filter(move |known| db.is_none_or(|db| db == known.db))
    }

    /// Where a lock is remembered; if it is not, the hash of its name.
    fn find(&self, db: i32, name: &[u8]) -> Result<Place, u32> {
        let is_it = |known: &Known| known.db == db && known.name.as_slice() == name;
        if self.places.get(self.last.get()).and_then(Option::as_ref).is_some_and(is_it) {
            return Ok(Place(self.last.get() as u32));
        }
        let hash = hash(&self.hasher, name);
        let is_found =
            |found: &Found| found.hash == hash && self.at(found.place).is_some_and(is_it);
        let locks = index(db).and_then(|index| self.dbs.get(index));
        let found = locks.and_then(|locks| locks.find(spread(hash), is_found)).ok_or(hash)?;
        self.last.set(found.place.index());
        Ok(found.place)
    }

    fn add(&mut self, known: Known) -> (Place, &mut Known) {
        let place = self.free.pop().unwrap_or_else(|| {
            if self.places.len() == self.places.capacity() {
                // Not twice as many, as a list grows by itself: that is much room.
                self.places.reserve_exact(self.places.len() / 8 + 64);
            }
            self.places.push(None);
            Place(self.places.len() as u32 - 1)
        });
        let index = index(known.db).unwrap_or(0);
        if self.dbs.len() <= index {
            self.dbs.resize_with(index + 1, HashTable::new);
        }
        let hash = known.hash;
        let found = Found { hash, place };
        self.dbs[index].insert_unique(spread(hash), found, |found| spread(found.hash));
        self.last.set(place.index());
        (place, self.places[place.index()].insert(known))
    }
}

impl Known {
    fn new(db: i32, name: &[u8], hash: u32) -> Known {
        Known {
            name: name.into(),
            due: NEVER,
            token: NO_TOKEN,
            queue: None,
            readers: None,
            last: None,
            hash,
            db,
            holds: 0,
            mode: None,
        }
    }
}

impl Place {
    /// The place of this number.
    pub fn of(number: u32) -> Place {
        Place(number)
    }

    /// Its number, from 0.
    pub fn number(self) -> u32 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as usize
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
