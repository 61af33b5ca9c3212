//! Looking at a lock.

use super::hash::{check_writer, count, end_of, mode_of, write_count};
use super::holds::{Excess, Field, Stored};
use super::names::{field_name, FieldName};
use super::numbering::{live_ends, ReadHolds};
use super::propagation::Propagation;
use super::served::serves_slot;
use super::snapshot::{Snapshot, StoredHash, StoredHolds};
use super::{is_cluster, Entry, Error, Held, LockName, LockRef, Owner, Reserved};
use crate::core::{End, Ends, Holds, Lock, Millis, Mode, Others};
use crate::ffi::{Access, Ctx, Db, Key, KeyType, Str, Text};
use std::cell::{Cell, RefCell};

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
    pub(super) reserved: RefCell<Option<Option<Reserved>>>,
    /// Whether somebody waits to whom the lock may be handed over.
    pub(super) awaited: bool,
    /// The field of the write hold that alone made the lock and is given back,
    /// while the hash is left to the next holder: to everybody the lock is free.
    pub(super) vacated: Option<Text>,
}

/// How much to find out about the holds of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// Only what it takes to know the lock's mode: where the owner's own holds
    /// tell it, the others are left out.
    Mode,
    /// Whether there are any.
    Presence,
    /// All of them, with the latest of their ends.
    Ends,
    /// The same, for giving back: of a lock that a single write hold makes, not
    /// even its end, for it ends with that.
    Release,
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
            reserved: RefCell::new(None),
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

    /// Looks at the lock as `owner` sees it.
    pub fn snapshot(&self, owner: &Owner<'_>, scope: ReadScope) -> Result<Snapshot, Error> {
        self.snapshot_with(owner, scope, None)
    }

    /// The lock's mode as `owner` sees it, where the last of its other readers is known, if
    /// it is read, to read until then.
    pub fn snapshot_beside(&self, owner: &Owner<'_>, latest: End) -> Result<Snapshot, Error> {
        self.snapshot_with(owner, ReadScope::Mode, Some(latest))
    }

    fn snapshot_with(
        &self,
        owner: &Owner<'_>,
        scope: ReadScope,
        readers: Option<End>,
    ) -> Result<Snapshot, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Snapshot::nothing());
        };
        let mode = mode_of(hash)?;
        let (own, alone) = self.own(hash, mode, owner, hash.field_count() - 1)?;
        let single = alone && mode == Mode::Write && own.writes == 1 && own.reads == 0;
        let is_last = single && scope == ReadScope::Release;
        let stale = StoredHash { mode, end: if is_last { End::Never } else { end_of(hash) } };
        let holds = Holds {
            reads: live_ends(&own.read_holds),
            writes: if stale.mode == Mode::Write { own.writes } else { 0 },
        };
        let own_tells_mode = match stale.mode {
            Mode::Read => !holds.reads.is_empty(),
            Mode::Write => holds.writes > 0,
        };
        let mut earliest = holds.reads.iter().copied().fold(stale.end, End::min);
        let mut met = holds.count();
        let readers = readers.filter(|_| mode == Mode::Read);
        let (others, stale_fields) = if readers.is_some() {
            (Others::Readers { latest: readers }, Vec::new())
        } else if alone || (scope == ReadScope::Mode && own_tells_mode) {
            (Others::None, Vec::new())
        } else {
            self.others(hash, owner.bytes(), stale.mode, scope, &mut earliest, &mut met)?
        };
        check_writer(mode, holds.writes > 0 || others == Others::Writer)?;
        let lock = Lock { own: holds, others, end: stale.end };
        let lock = if lock.is_free() { Lock::free() } else { lock };
        Ok(Snapshot { lock, earliest, holds: met, hash: Some(stale), own, single, stale_fields })
    }

    /// What the hash and the timeout keys say of the owner's own holds, and
    /// whether the hash says nothing else. A field is asked for only while
    /// there are fields that nothing is known of.
    fn own(
        &self,
        hash: &Key<'_>,
        mode: Mode,
        owner: &Owner<'_>,
        mut unknown: usize,
    ) -> Result<(StoredHolds, bool), Error> {
        let mut stored = |kind| {
            if unknown == 0 {
                return Ok(0);
            }
            let value = match kind {
                Mode::Read => hash.hash_get(owner.read_field()),
                Mode::Write => hash.hash_get(owner.write_field()),
            };
            unknown -= usize::from(value.is_some());
            value.map_or(Ok(0), |text| count(text.bytes()))
        };
        // The kind that the mode makes likely first.
        let (reads, writes) = match mode {
            Mode::Read => (stored(Mode::Read)?, stored(Mode::Write)?),
            Mode::Write => {
                let writes = stored(Mode::Write)?;
                (stored(Mode::Read)?, writes)
            }
        };
        let read_holds = match reads {
            0 => ReadHolds::new(),
            reads => self.read_holds(owner.bytes(), reads, Excess::Refuse)?,
        };
        Ok((StoredHolds { reads, read_holds, writes }, unknown == 0))
    }

    /// Looks at the holds of others, no further than `scope` asks.
    fn others(
        &self,
        hash: &Key<'_>,
        own: &[u8],
        mode: Mode,
        scope: ReadScope,
        earliest: &mut End,
        met: &mut u64,
    ) -> Result<(Others, Vec<Field>), Error> {
        let mut others = Others::None;
        let mut latest = None;
        let mut stale_fields = Vec::new();
        for field in self.fields(hash, Excess::Refuse) {
            let field = field?;
            if field.owner == own {
                continue;
            }
            match &field.stored {
                Stored::Writes(count) if mode == Mode::Write => {
                    others = Others::Writer;
                    *met = met.saturating_add(*count);
                }
                Stored::Writes(_) => {}
                Stored::Reads(read_holds) => {
                    for end in live_ends(read_holds) {
                        latest = latest.max(Some(end));
                        *earliest = end.min(*earliest);
                        *met = met.saturating_add(1);
                    }
                    if latest.is_some() && others == Others::None {
                        others = Others::Readers { latest: None };
                    }
                }
            }
            if field.stored.is_stale(mode) {
                stale_fields.push(field);
            }
            let told = match mode {
                Mode::Read => others != Others::None,
                Mode::Write => others == Others::Writer,
            };
            if told && !matches!(scope, ReadScope::Ends | ReadScope::Release) {
                return Ok((others, stale_fields));
            }
        }
        if let Others::Readers { latest: known } = &mut others {
            *known = latest;
        }
        Ok((others, stale_fields))
    }

    /// The end of the hash, and every field that has live holds; None when
    /// nobody holds the lock.
    pub fn holders(&self) -> Result<Option<(End, Vec<Entry>)>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(None);
        };
        let mode = mode_of(hash)?;
        let mut entries = Vec::new();
        for field in self.fields(hash, Excess::Refuse) {
            let Field { owner, stored } = field?;
            let held = match stored {
                Stored::Reads(read_holds) => Held::Reads(live_ends(&read_holds)),
                Stored::Writes(count) => Held::Writes(count),
            };
            let lives = match &held {
                Held::Reads(ends) => !ends.is_empty(),
                Held::Writes(_) => mode == Mode::Write,
            };
            if lives {
                entries.push(Entry { owner, held });
            }
        }
        check_writer(mode, entries.iter().any(|entry| matches!(entry.held, Held::Writes(_))))?;
        Ok((!entries.is_empty()).then_some((end_of(hash), entries)))
    }

    /// Every field of the hash, live or not, and the mode that it tells; None
    /// without a hash.
    pub(super) fn everything(&self) -> Result<Option<(Mode, Vec<Field>)>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(None);
        };
        let mode = mode_of(hash)?;
        let fields = self.fields(hash, Excess::Ignore).collect::<Result<Vec<_>, _>>()?;
        check_writer(mode, fields.iter().any(|field| matches!(field.stored, Stored::Writes(_))))?;
        Ok(Some((mode, fields)))
    }
}
