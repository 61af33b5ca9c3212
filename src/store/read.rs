//! Reads a lock: a snapshot, its holders, its fields.

use super::hash::{check_writer, count, end_of, mode_of};
use super::holds::{Excess, Field, Stored, TimeoutOf};
use super::names::{field_name, FieldName};
use super::numbering::{live_ends, ReadHold, ReadHolds};
use super::snapshot::{Snapshot, StoredHash, StoredHolds};
use super::{is_cluster, text, Entry, Error, Held, LockName, Owner, Store};
use crate::core::{End, Holds, Lock, Mode, Others, MAX_READS};
use crate::ffi::{Access, Db, Key, KeyType, Str};
use crate::planted::{is_planted, Bug};

/// How many timeout keys one command reads at most. Counts in the hash can be external and wrong,
/// and must not keep the server busy.
const MAX_KEYS_READ: u64 = 1_000_000;

/// What can be told of a held lock without reading its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub mode: Mode,
    /// The number of holders. An owner that reads and writes counts twice. Lapsed holds count until
    /// they are removed.
    pub holders: usize,
    pub end: End,
}

impl Summary {
    /// Reads the lock `key`. None: it is free, or the key holds no lock. In a cluster it does not
    /// ask whether this node serves the slot.
    pub fn read(db: Db<'_>, key: &Str) -> Option<Summary> {
        let name = LockName::new(key.bytes(), is_cluster()).ok()?;
        let store = Store::of(db, key, name, Access::Read);
        let hash = store.hash().ok()??;
        let holders = hash.field_count().saturating_sub(1);
        let mode = mode_of(hash).ok()?;
        (holders > 0).then_some(Summary { mode, holders, end: end_of(hash) })
    }
}

/// How much of the holds of other owners a snapshot reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// As much as the lock's mode takes. If the owner has live holds of that mode, no other holds
    /// are read.
    Mode,
    /// As much as it takes to know whether there are other holders.
    Presence,
    /// All holds, with the latest of their ends.
    Ends,
    /// All holds, for a request that gives holds back. If the lock has only one write hold, of this
    /// owner, the end of the lock is not read, because the lock ends with the hold.
    Release,
}

/// A lock's hash that was found and counted, for one snapshot.
#[derive(Clone, Copy)]
pub struct FoundHash<'s> {
    key: &'s Key<'s>,
    /// The number of its fields, the mode included.
    pub fields: usize,
}

impl Store<'_> {
    /// Takes a snapshot of the lock as `owner` sees it.
    pub fn snapshot(&self, owner: &Owner<'_>, scope: ReadScope) -> Result<Snapshot, Error> {
        match self.found_hash()? {
            Some(hash) => self.snapshot_of(hash, owner, scope, None),
            None => Ok(Snapshot::nothing()),
        }
    }

    /// The lock's hash, for [`Store::snapshot_of`]; None: there is none. [`Error::WrongType`]: the
    /// key is no hash.
    pub fn found_hash(&self) -> Result<Option<FoundHash<'_>>, Error> {
        Ok(self.hash()?.map(|key| FoundHash { key, fields: key.field_count() }))
    }

    /// Takes a snapshot of the lock as `owner` sees it. `readers`: the latest end of the other
    /// readers, if it is known. In read mode their fields are not read then.
    pub fn snapshot_of(
        &self,
        FoundHash { key: hash, fields }: FoundHash<'_>,
        owner: &Owner<'_>,
        scope: ReadScope,
        readers: Option<End>,
    ) -> Result<Snapshot, Error> {
        let mode = mode_of(hash)?;
        let (own, no_others) = self.read_own(hash, mode, owner, fields - 1)?;
        let is_single_write = no_others && mode == Mode::Write && own.writes == 1 && own.reads == 0;
        let needs_no_end = is_single_write && scope == ReadScope::Release;
        let stored = StoredHash { mode, end: if needs_no_end { End::Never } else { end_of(hash) } };
        let holds = Holds {
            reads: live_ends(&own.read_holds),
            writes: if mode == Mode::Write { own.writes } else { 0 },
        };
        let own_tells_mode = match mode {
            Mode::Read => !holds.reads.is_empty(),
            Mode::Write => holds.writes > 0,
        };
        let mut earliest = holds.reads.iter().copied().fold(stored.end, End::min);
        let mut live_holds = holds.count();
        let readers = readers.filter(|_| mode == Mode::Read);
        let (others, stale_fields) = if readers.is_some() {
            (Others::Readers { latest: readers }, Vec::new())
        } else if no_others || (scope == ReadScope::Mode && own_tells_mode) {
            (Others::None, Vec::new())
        } else {
            self.read_others(hash, owner.bytes(), mode, scope, &mut earliest, &mut live_holds)?
        };
        check_writer(mode, holds.writes > 0 || others == Others::Writer)?;
        let lock = Lock { own: holds, others, end: stored.end };
        let lock = if lock.is_free() { Lock::free() } else { lock };
        Ok(Snapshot {
            lock,
            earliest,
            holds: live_holds,
            hash: Some(stored),
            own,
            is_single_write,
            stale_fields,
        })
    }

    /// Reads the owner's own holds, and whether the hash has no fields of other owners. `unknown`:
    /// the number of fields beside the mode. When all of them are found, no other is read.
    fn read_own(
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
        // The more probable kind first. After a hit there may be no need to read the other.
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

    /// Reads the holds of other owners, as far as `scope` asks, and the fields that need repair.
    /// Lowers `earliest` to the ends of the holds, and adds their number to `live_holds`.
    fn read_others(
        &self,
        hash: &Key<'_>,
        own: &[u8],
        mode: Mode,
        scope: ReadScope,
        earliest: &mut End,
        live_holds: &mut u64,
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
                    *live_holds = live_holds.saturating_add(*count);
                }
                Stored::Writes(_) => {}
                Stored::Reads(read_holds) => {
                    for end in live_ends(read_holds) {
                        latest = latest.max(Some(end));
                        *earliest = end.min(*earliest);
                        *live_holds = live_holds.saturating_add(1);
                    }
                    if latest.is_some() && others == Others::None {
                        others = Others::Readers { latest: None };
                    }
                }
            }
            if field.stored.is_stale(mode) {
                stale_fields.push(field);
            }
            let is_enough = match mode {
                Mode::Read => others != Others::None,
                Mode::Write => others == Others::Writer,
            };
            if is_enough && !matches!(scope, ReadScope::Ends | ReadScope::Release) {
                return Ok((others, stale_fields));
            }
        }
        if let Others::Readers { latest: known } = &mut others {
            *known = latest;
        }
        Ok((others, stale_fields))
    }

    /// The end of the hash, and all fields with live holds; None: the lock is free.
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

    /// The mode of the hash, and all its fields with live or lapsed holds; None: there is no hash.
    /// Holds beyond the limits are left out.
    pub(super) fn mode_and_fields(&self) -> Result<Option<(Mode, Vec<Field>)>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(None);
        };
        let mode = mode_of(hash)?;
        let fields = self.fields(hash, Excess::Ignore).collect::<Result<Vec<_>, _>>()?;
        check_writer(mode, fields.iter().any(|field| matches!(field.stored, Stored::Writes(_))))?;
        Ok(Some((mode, fields)))
    }
}

impl Store<'_> {
    /// Some owners in the hash, at most so many, each with a mode that it holds. Whether their
    /// holds have lapsed is not checked.
    pub fn some_holders(&self, limit: usize) -> Result<Vec<(Vec<u8>, Mode)>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Vec::new());
        };
        let holders = hash.fields().filter_map(|(field, _)| match field_name(&field) {
            FieldName::Mode => None,
            FieldName::Reads(owner) => Some((owner.to_vec(), Mode::Read)),
            FieldName::Writes(owner) => Some((owner.to_vec(), Mode::Write)),
        });
        Ok(holders.take(limit).collect())
    }
}

impl<'c> Store<'c> {
    /// The owner of the write holds; None: the lock is not in write mode.
    pub fn writer(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(None);
        };
        let mut fields = hash.fields().filter(|_| mode_of(hash) == Ok(Mode::Write));
        Ok(fields.find_map(|(field, _)| match field_name(&field) {
            FieldName::Writes(owner) => Some(owner.to_vec()),
            FieldName::Mode | FieldName::Reads(_) => None,
        }))
    }

    /// All fields of the lock's hash except the mode.
    pub(super) fn fields<'s>(
        &'s self,
        hash: &'s Key<'_>,
        excess: Excess,
    ) -> impl Iterator<Item = Result<Field, Error>> + use<'s, 'c> {
        hash.fields().filter_map(move |(field, value)| {
            let (owner, is_write) = match field_name(&field) {
                FieldName::Mode => return None,
                FieldName::Reads(owner) => (owner, false),
                FieldName::Writes(owner) => (owner, true),
            };
            let stored = count(&value).and_then(|count| {
                Ok(if is_write {
                    Stored::Writes(count)
                } else {
                    Stored::Reads(self.read_holds(owner, count, excess)?)
                })
            });
            Some(stored.map(|stored| Field { owner: owner.to_vec(), stored }))
        })
    }

    /// Reads the timeout keys of an owner's `count` read holds. `excess`: what to do beyond the
    /// limits.
    pub(super) fn read_holds(
        &self,
        owner: &[u8],
        count: u64,
        excess: Excess,
    ) -> Result<ReadHolds, Error> {
        let keys_read = self.keys_read.get().saturating_add(count);
        let too_many = count > MAX_READS || keys_read > MAX_KEYS_READ;
        if too_many && excess == Excess::Refuse {
            return Err(Error::TooManyReads);
        }
        let count = count.min(MAX_READS).min(MAX_KEYS_READ.saturating_sub(self.keys_read.get()));
        self.keys_read.set(keys_read);
        (1..=count).map(|number| self.read_hold(owner, number)).collect()
    }

    /// Reads the timeout key of an owner's read hold. The key of a live hold stays open.
    pub(super) fn read_hold(&self, owner: &[u8], number: u64) -> Result<ReadHold, Error> {
        let name = text(&self.name.timeout(owner, number));
        let lapsed = match is_planted(Bug::LapsedReaderCounts) {
            true => ReadHold::Live(End::Never),
            false => ReadHold::Lapsed,
        };
        let Some(key) = self.open_derived(&name, self.access) else {
            return Ok(lapsed);
        };
        Ok(match self.lock_of_timeout(&key)? {
            TimeoutOf::Missing => lapsed,
            TimeoutOf::ThisLock => {
                let end = key.expiry().map_or(End::Never, End::At);
                if self.is_past(end) {
                    ReadHold::Lapsed
                } else {
                    self.kept.replace(Some((name, key)));
                    ReadHold::Live(end)
                }
            }
            TimeoutOf::OtherLock(lock) => ReadHold::OfOtherLock(lock),
        })
    }

    /// The lock to which a timeout key belongs. Its value is the name of the lock, or the `1` that
    /// Redisson writes, which counts as this lock.
    pub(super) fn lock_of_timeout(&self, key: &Key<'_>) -> Result<TimeoutOf, Error> {
        match key.kind() {
            KeyType::Empty => Ok(TimeoutOf::Missing),
            KeyType::String => {
                let value = key.string();
                let ours = value == self.name.bytes() || value == b"1";
                Ok(if ours { TimeoutOf::ThisLock } else { TimeoutOf::OtherLock(value.to_vec()) })
            }
            KeyType::Hash | KeyType::Other => Err(Error::WrongType("a timeout key is no string")),
        }
    }
}
