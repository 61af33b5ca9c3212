//! What is remembered of each lock.

use super::readers::Readers;
use crate::core::{Millis, Mode, Queue, Token};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// A lock: its database and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    pub db: i32,
    pub name: Arc<[u8]>,
}

/// What is remembered of a lock that is held or waited for.
#[derive(Debug)]
pub struct Known {
    /// Its id, to be shared.
    pub id: LockId,
    /// The mode that it had when last looked at; None: free.
    pub mode: Option<Mode>,
    /// The fencing token that its writer was given last, since it began to write.
    pub token: Option<Token>,
    /// When its alarm rings: not later than the first of its holds ends.
    pub due: Option<Millis>,
    /// Who waits for it.
    pub queue: Option<Box<Queue>>,
    /// Its readers, when there are many.
    pub readers: Option<Box<Readers>>,
}

/// What is remembered of all locks, database by database.
#[derive(Default)]
pub struct Memory {
    dbs: Vec<HashTable<Known>>,
    hasher: DefaultHashBuilder,
}

impl Memory {
    /// What is remembered of a lock.
    pub fn get(&self, db: i32, name: &[u8]) -> Option<&Known> {
        self.dbs.get(index(db)?)?.find(self.hasher.hash_one(name), is(name))
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<&mut Known> {
        self.dbs.get_mut(index(db)?)?.find_mut(self.hasher.hash_one(name), is(name))
    }

    /// The same; a lock that nothing is known of becomes one that is free.
    pub fn entry(&mut self, db: i32, name: &[u8]) -> &mut Known {
        let index = index(db).unwrap_or(0);
        if self.dbs.len() <= index {
            self.dbs.resize_with(index + 1, HashTable::new);
        }
        let hasher = &self.hasher;
        let rehash = |known: &Known| hasher.hash_one(&*known.id.name);
        let entry = self.dbs[index].entry(hasher.hash_one(name), is(name), rehash);
        let new = || Known {
            id: LockId { db, name: name.into() },
            mode: None,
            token: None,
            due: None,
            queue: None,
            readers: None,
        };
        entry.or_insert_with(new).into_mut()
    }

    /// Forgets a lock.
    pub fn remove(&mut self, db: i32, name: &[u8]) {
        if let Some(locks) = index(db).and_then(|index| self.dbs.get_mut(index)) {
            if let Ok(known) = locks.find_entry(self.hasher.hash_one(name), is(name)) {
                known.remove();
            }
        }
    }

    /// All locks of a database, or of all.
    pub fn locks(&self, db: Option<i32>) -> impl Iterator<Item = &Known> {
        let wanted = db.and_then(index);
        let dbs = self.dbs.iter().enumerate();
        dbs.filter(move |(index, _)| wanted.is_none_or(|wanted| wanted == *index))
            .flat_map(|(_, locks)| locks.iter())
    }
}

fn is(name: &[u8]) -> impl Fn(&Known) -> bool + '_ {
    move |known| *known.id.name == *name
}

fn index(db: i32) -> Option<usize> {
    usize::try_from(db).ok()
}
