//! Reading a lock: a snapshot, all its holders, all its fields.

use super::hash::{check_writer, count, end_of, mode_of};
use super::holds::{Excess, Field, Stored, Whose};
use super::names::{field_name, FieldName};
use super::numbering::{live_ends, ReadHold, ReadHolds};
use super::snapshot::{Snapshot, StoredHash, StoredHolds};
use super::{text, Entry, Error, Held, Owner, Store};
use crate::core::{End, Holds, Lock, Mode, Others, MAX_READS};
use crate::ffi::{Key, KeyType};

/// The timeout keys that one command looks at. More, in one lock, only a
/// foreign hand can have counted, and they must not keep the server busy.
const MAX_KEYS_READ: u64 = 1_000_000;

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

impl Store<'_> {
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

impl<'c> Store<'c> {
    /// Who writes, if anybody does.
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

    /// Every field of the lock's hash but the mode.
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

    /// What the timeout keys say of an owner's `count` read holds.
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

    /// What the timeout key of an owner's read hold says.
    pub(super) fn read_hold(&self, owner: &[u8], number: u64) -> Result<ReadHold, Error> {
        let name = text(&self.name.timeout(owner, number));
        let Some(key) = self.open_derived(&name, self.access) else {
            return Ok(ReadHold::Lapsed);
        };
        Ok(match self.whose(&key)? {
            Whose::Nobody => ReadHold::Lapsed,
            Whose::Ours => {
                let end = key.expiry().map_or(End::Never, End::At);
                if self.is_past(end) {
                    ReadHold::Lapsed
                } else {
                    self.kept.replace(Some((name, key)));
                    ReadHold::Live(end)
                }
            }
            Whose::Other(lock) => ReadHold::OfOtherLock(lock),
        })
    }

    /// Whose timeout key this is. Redisson writes `1` where we write the
    /// lock's name.
    pub(super) fn whose(&self, key: &Key<'_>) -> Result<Whose, Error> {
        match key.kind() {
            KeyType::Empty => Ok(Whose::Nobody),
            KeyType::String => {
                let value = key.string();
                let ours = value == self.name.bytes() || value == b"1";
                Ok(if ours { Whose::Ours } else { Whose::Other(value.to_vec()) })
            }
            KeyType::Hash | KeyType::Other => Err(Error::WrongType("a timeout key is no string")),
        }
    }
}
