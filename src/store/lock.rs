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

/// A reservation that has not lapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The owner that polls for a write hold.
    pub owner: Vec<u8>,
    /// When the reservation lapses.
    pub end: End,
}

/// The keys of one lock, open for the length of one command.
pub struct Store<'c> {
    pub(super) db: Db<'c>,
    pub(super) key: &'c Str,
    pub(super) name: LockName<'c>,
    pub(super) access: Access,
    pub(super) out: Propagation<'c>,
    /// Whether a client's command works on the lock. The server has allowed its write.
    pub(super) is_allowed: bool,
    /// The time of the command in unix ms; None: not read yet.
    now: Cell<Option<Millis>>,
    /// The lock's own key; None: the access is for reading, and the key does not exist.
    pub(super) hash: Option<Key<'c>>,
    /// The number of read holds that the command has counted. Each has a timeout key to read.
    pub(super) keys_read: Cell<u64>,
    /// The timeout key of the live hold that was read last. It stays open, because it is often
    /// the one to be changed.
    pub(super) kept: RefCell<Option<(Text, Key<'c>)>>,
    /// The reservation; unset: not read yet.
    pub(super) reserved: OnceCell<Option<Reserved>>,
    /// Whether a commit that frees the lock may keep the hash for the next writer.
    pub(super) may_hand_over: bool,
    /// The write field of the last owner, while the lock is free but the hash is kept for the
    /// next writer. All methods show such a lock as free.
    pub(super) vacated: Option<Text>,
}

impl<'c> Store<'c> {
    /// Opens the lock `key`. Errors: those of [`Store::check`].
    pub fn open(db: Db<'c>, key: &'c Str, access: Access) -> Result<Store<'c>, Error> {
        Ok(Store::of(db, key, Store::check(db, key, access)?, access))
    }

    /// Checks that a lock may have this name, and that this server serves its slot. Errors:
    /// [`Error::BadLockName`]; in a cluster also [`Error::CrossSlot`], [`Error::TryAgain`] and
    /// [`Error::ClusterDown`].
    pub fn check(db: Db<'c>, key: &'c Str, access: Access) -> Result<LockName<'c>, Error> {
        let name = LockName::new(key.bytes(), is_cluster())?;
        if is_cluster() {
            serves_slot(db.ctx(), name, access)?;
        }
        Ok(name)
    }

    /// Opens the lock `key`. `name`: the result of [`Store::check`] for this key.
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
            may_hand_over: false,
            vacated: None,
        }
    }

    /// Opens a derived key, or takes the handle that is kept open. A key must not have two
    /// handles: after a change through one, the other could point to freed memory.
    pub(super) fn open_derived(&self, name: &Str, access: Access) -> Option<Key<'c>> {
        match self.kept.take() {
            Some((kept, key)) if kept.bytes() == name.bytes() => Some(key),
            _ => self.db.open(name, access),
        }
    }

    /// Closes the derived key that is kept open. Needed before another lock is opened: both may
    /// have the same derived keys.
    pub fn close_kept(&mut self) {
        self.kept.take();
    }

    /// The database and the name of the lock.
    pub fn lock(&self) -> LockRef<'c> {
        LockRef { db: self.db.number(), name: self.name.bytes() }
    }

    /// The number of fields of the hash, the mode included; 0: there is no hash, or the key has
    /// another type. The hash of a lock with one writer and no read holds has two fields.
    pub fn field_count(&self) -> usize {
        match self.hash() {
            Ok(Some(hash)) => hash.field_count(),
            _ => 0,
        }
    }

    /// The ends of an owner's live read holds, lowest number first.
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

    /// Whether the owner writes, and the hash counts no other holds, live or not.
    pub fn has_sole_writer(&self, owner: &[u8]) -> Result<bool, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(false);
        };
        Ok(hash.field_count() == 2
            && write_count(hash, owner)? > 0
            && mode_of(hash)? == Mode::Write)
    }

    /// The mode in the hash, also if all its holds have lapsed; None: there is no hash.
    pub fn mode(&self) -> Result<Option<Mode>, Error> {
        self.hash()?.map(mode_of).transpose()
    }

    /// Whether the owner has a live hold.
    pub fn is_held_by(&self, owner: &[u8]) -> Result<bool, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(false);
        };
        let writes =
            || Ok::<_, Error>(mode_of(hash)? == Mode::Write && write_count(hash, owner)? > 0);
        Ok(!self.read_ends(owner)?.is_empty() || writes()?)
    }

    /// The owners that have read holds in the hash, with the ends of their live read holds.
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

    /// The values that `select` returns for the owners of live holds. The holds of an owner for
    /// which it returns None are not read.
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

    /// Whether the lock's key exists, with any type. A hash that is kept for the next writer does
    /// not count.
    pub fn exists(&self) -> bool {
        self.vacated.is_none() && self.hash.as_ref().is_some_and(|key| key.kind() != KeyType::Empty)
    }

    /// The context in which the lock was opened.
    pub fn ctx(&self) -> Ctx<'c> {
        self.db.ctx()
    }

    /// The time of this command, in unix ms. It is read once.
    pub fn now(&self) -> Millis {
        let now = self.now.get().unwrap_or_else(|| self.db.ctx().now());
        self.now.set(Some(now));
        now
    }

    /// Whether a key that the server shows and that has this end has lapsed. Redis 7.0 hides the
    /// time that it freezes for a script or a transaction. There a key lives as long as the server
    /// shows it.
    pub fn is_past(&self, end: End) -> bool {
        end.is_past(self.now()) && !self.db.ctx().has_hidden_frozen_time()
    }

    /// The lock's hash; None: the key does not exist or has lapsed, or the hash is kept for the
    /// next writer. [`Error::WrongType`]: the key is no hash.
    pub(super) fn hash(&self) -> Result<Option<&Key<'c>>, Error> {
        let Some(key) = self.hash.as_ref().filter(|_| self.vacated.is_none()) else {
            return Ok(None);
        };
        match key.kind() {
            KeyType::Empty => Ok(None),
            // A replica that serves old data while it loads shows keys that have lapsed.
            KeyType::Hash if self.access == Access::Read && self.is_past(end_of(key)) => Ok(None),
            KeyType::Hash => Ok(Some(key)),
            KeyType::String | KeyType::Other => Err(Error::WrongType("the key holds no lock")),
        }
    }
}
