//! The keys of a lock.

use super::hash::{count, end_of, mode_of, write_count};
use super::holds::{Excess, Field, Stored};
use super::names::{field_name, FieldName};
use super::numbering::live_ends;
use super::propagation::Propagation;
use super::slot::serves_slot;
use super::{is_cluster, Error, LockName, LockRef};
use crate::core::{End, Ends, Millis, Mode};
use crate::ffi::{Access, Ctx, Db, Key, KeyType, Str, Text};
use std::cell::{Cell, OnceCell, RefCell};

/// A reservation that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Whose it is.
    pub owner: Vec<u8>,
    /// How long it stands.
    pub end: End,
}

/// The keys of one lock, for the length of one command.
pub struct Store<'c> {
    pub(super) db: Db<'c>,
    pub(super) key: &'c Str,
    pub(super) name: LockName<'c>,
    pub(super) access: Access,
    pub(super) out: Propagation<'c>,
    /// Whether a client's command works on it, which the server has allowed.
    pub(super) is_allowed: bool,
    /// The time, once it was asked for.
    now: Cell<Option<Millis>>,
    /// The key itself; None when it is opened for reading and not there.
    pub(super) hash: Option<Key<'c>>,
    /// How many timeout keys were looked at.
    pub(super) keys_read: Cell<u64>,
    /// The timeout key of the live hold that was looked at last, still open:
    /// it is often the one to be changed.
    pub(super) kept: RefCell<Option<(Text, Key<'c>)>>,
    /// The reservation that stands, once it was looked for.
    pub(super) reserved: OnceCell<Option<Reserved>>,
    /// Whether somebody waits to whom the lock may be handed over.
    pub(super) awaited: bool,
    /// The field of the write hold that alone made the lock and is given back,
    /// while the hash is left to the next holder: to everybody the lock is free.
    pub(super) vacated: Option<Text>,
}

impl<'c> Store<'c> {
    /// The keys of the lock `key`, for reading or also for writing.
    pub fn open(db: Db<'c>, key: &'c Str, access: Access) -> Result<Store<'c>, Error> {
        Ok(Store::of(db, key, Store::check(db, key, access)?, access))
    }

    /// Checks that a key can be a lock's, and that this server serves it.
    pub fn check(db: Db<'c>, key: &'c Str, access: Access) -> Result<LockName<'c>, Error> {
        let name = LockName::new(key.bytes(), is_cluster())?;
        if is_cluster() {
            serves_slot(db.ctx(), name, access)?;
        }
        Ok(name)
    }

    /// The keys of the lock of this name, which was checked.
    pub fn of(db: Db<'c>, key: &'c Str, name: LockName<'c>, access: Access) -> Store<'c> {
        Store {
            db,
            key,
            name,
            access,
            out: Propagation::of(db),
            is_allowed: false,
            now: Cell::new(None),
            hash: db.open(key, access),
            keys_read: Cell::new(0),
            kept: RefCell::new(None),
            reserved: OnceCell::new(),
            awaited: false,
            vacated: None,
        }
    }

    /// Opens a derived key. Of each there is only one open at a time: one that
    /// was changed through another would point to what is gone.
    pub(super) fn open_derived(&self, name: &Str, access: Access) -> Option<Key<'c>> {
        match self.kept.take() {
            Some((kept, key)) if kept.bytes() == name.bytes() => Some(key),
            _ => self.db.open(name, access),
        }
    }

    /// Which lock it is.
    pub fn lock(&self) -> LockRef<'c> {
        LockRef { db: self.db.number(), name: self.name.bytes() }
    }

    /// How many fields the hash has; a writer's has two.
    pub fn field_count(&self) -> usize {
        match self.hash() {
            Ok(Some(hash)) => hash.field_count(),
            _ => 0,
        }
    }

    /// The ends of an owner's live read holds.
    pub fn read_ends(&self, owner: &[u8]) -> Result<Ends, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Ends::new());
        };
        let Some(value) = hash.hash_get(&Text::new(owner)) else {
            return Ok(Ends::new());
        };
        let count = count(value.bytes())?;
        Ok(live_ends(&self.read_holds(owner, count, Excess::Refuse)?))
    }

    /// Whether an owner writes, and nobody else has any hold, live or not.
    pub fn has_sole_writer(&self, owner: &[u8]) -> Result<bool, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(false);
        };
        Ok(hash.field_count() == 2
            && write_count(hash, owner)? > 0
            && mode_of(hash)? == Mode::Write)
    }

    /// The mode that the hash tells, whether or not its holds live; None: there is none.
    pub fn mode(&self) -> Result<Option<Mode>, Error> {
        self.hash()?.map(mode_of).transpose()
    }

    /// Whether an owner has a live hold.
    pub fn is_held_by(&self, owner: &[u8]) -> Result<bool, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(false);
        };
        let writes =
            || Ok::<_, Error>(mode_of(hash)? == Mode::Write && write_count(hash, owner)? > 0);
        Ok(!self.read_ends(owner)?.is_empty() || writes()?)
    }

    /// The ends of the live read holds of all owners.
    pub fn all_read_ends(&self) -> Result<Vec<(Vec<u8>, Ends)>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for field in self.fields(hash, Excess::Refuse) {
            if let Field { owner, stored: Stored::Reads(read_holds) } = field? {
                all.push((owner, live_ends(&read_holds)));
            }
        }
        Ok(all)
    }

    /// The owners of live holds, as far as `select` knows them.
    pub fn live_owners<T>(&self, select: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Vec::new());
        };
        let mode = mode_of(hash)?;
        let mut owners = Vec::new();
        for (field, value) in hash.fields() {
            let lives = |owner, is_write| {
                let count = count(value.as_slice())?;
                Ok::<bool, Error>(match is_write {
                    true => mode == Mode::Write,
                    false => !live_ends(&self.read_holds(owner, count, Excess::Ignore)?).is_empty(),
                })
            };
            let (owner, is_write) = match field_name(&field) {
                FieldName::Mode => continue,
                FieldName::Reads(owner) => (owner, false),
                FieldName::Writes(owner) => (owner, true),
            };
            if let Some(selected) = select(owner) {
                if lives(owner, is_write)? {
                    owners.push(selected);
                }
            }
        }
        Ok(owners)
    }

    /// Whether the key is there, whatever it holds.
    pub fn exists(&self) -> bool {
        self.vacated.is_none() && self.hash.as_ref().is_some_and(|key| key.kind() != KeyType::Empty)
    }

    /// The context that it was opened in.
    pub fn ctx(&self) -> Ctx<'c> {
        self.db.ctx()
    }

    /// The time that this command goes by.
    pub fn now(&self) -> Millis {
        let now = self.now.get().unwrap_or_else(|| self.db.ctx().now());
        self.now.set(Some(now));
        now
    }

    /// Whether the end of a key that is there has passed. Where the server does
    /// not tell at which time it stands still, it lives while the server shows it.
    pub fn is_past(&self, end: End) -> bool {
        end.is_past(self.now()) && !self.db.ctx().stands_still_unseen()
    }

    /// The lock's hash, if it is there.
    pub(super) fn hash(&self) -> Result<Option<&Key<'c>>, Error> {
        let Some(key) = self.hash.as_ref().filter(|_| self.vacated.is_none()) else {
            return Ok(None);
        };
        match key.kind() {
            KeyType::Empty => Ok(None),
            // A replica that serves old data while it loads shows what has lapsed.
            KeyType::Hash if self.access == Access::Read && self.is_past(end_of(key)) => Ok(None),
            KeyType::Hash => Ok(Some(key)),
            KeyType::String | KeyType::Other => Err(Error::WrongType("the key holds no lock")),
        }
    }
}
