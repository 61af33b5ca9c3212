//! Looking at a lock.

use super::holds::{count, Excess, Field, Stored};
use super::numbering::{live_ends, Slots};
use super::{is_cluster, Entry, Error, Held, LockName, Owner, WORDS};
use crate::core::{End, Holds, Lock, Millis, Mode, Others};
use crate::ffi::{Access, Ctx, Key, Kind, Str, Text};
use std::cell::Cell;

/// The keys of one lock, for the length of one command.
pub struct Store<'c> {
    pub(super) ctx: Ctx<'c>,
    pub(super) key: &'c Str,
    pub(super) name: LockName<'c>,
    pub(super) access: Access,
    pub(super) now: Millis,
    /// The key itself; None when it is opened for reading and not there.
    pub(super) hash: Option<Key<'c>>,
    /// How many timeout keys were looked at.
    pub(super) looked: Cell<u64>,
}

/// How much to find out about the holds of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// Only what it takes to know the lock's mode: where the owner's own holds
    /// tell it, the others are left out.
    Mode,
    /// Whether there are any.
    Presence,
    /// All of them, with the latest of their ends.
    Ends,
}

/// What a look at a lock found: the truth, and what the keys say where that is
/// more or other than the truth.
pub struct Seen {
    /// The lock as it is.
    pub lock: Lock,
    pub(super) hash: Option<Stale>,
    pub(super) own: OwnStored,
    /// Fields of others that are no longer true.
    pub(super) debris: Vec<Field>,
}

/// What the hash says of the whole lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    pub mode: Mode,
    pub end: End,
}

/// What the keys say of the owner's own holds.
#[derive(Default)]
pub(super) struct OwnStored {
    /// The read count; 0 without a field.
    pub reads: u64,
    pub slots: Slots,
    /// The write count; 0 without a field.
    pub writes: u64,
}

impl Seen {
    /// No hash.
    pub(super) fn nothing() -> Seen {
        Seen { lock: Lock::free(), hash: None, own: OwnStored::default(), debris: Vec::new() }
    }
}

impl<'c> Store<'c> {
    /// The keys of the lock `key`, for reading or also for writing.
    pub fn open(ctx: Ctx<'c>, key: &'c Str, access: Access) -> Result<Store<'c>, Error> {
        let name = LockName::new(key.bytes(), is_cluster())?;
        if is_cluster() && !serves_slot(ctx, name) {
            return Err(Error::TryAgain);
        }
        Ok(Store {
            ctx,
            key,
            name,
            access,
            now: ctx.now(),
            hash: ctx.open(key, access),
            looked: Cell::new(0),
        })
    }

    /// The time that this command goes by.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// The lock's hash, if it is there.
    fn hash(&self) -> Result<Option<&Key<'c>>, Error> {
        let Some(key) = &self.hash else {
            return Ok(None);
        };
        match key.kind() {
            Kind::Empty => Ok(None),
            Kind::Hash => Ok(Some(key)),
            Kind::String | Kind::Other => Err(Error::WrongType("the key holds no lock")),
        }
    }

    /// Looks at the lock as `owner` sees it.
    pub fn look(&self, owner: &Owner<'_>, survey: Survey) -> Result<Seen, Error> {
        let Some(hash) = self.hash()? else {
            return Ok(Seen::nothing());
        };
        let stale = Stale { mode: mode_of(hash)?, end: end_of(hash) };
        let (own, alone) = self.own(hash, stale.mode, owner)?;
        let holds = Holds {
            reads: live_ends(&own.slots),
            writes: if stale.mode == Mode::Write { own.writes } else { 0 },
        };
        let own_tells_mode = match stale.mode {
            Mode::Read => !holds.reads.is_empty(),
            Mode::Write => holds.writes > 0,
        };
        let (others, debris) = if alone || (survey == Survey::Mode && own_tells_mode) {
            (Others::None, Vec::new())
        } else {
            self.others(hash, owner.bytes(), stale.mode, survey)?
        };
        let lock = Lock { own: holds, others, end: stale.end };
        let lock = if lock.is_free() { Lock::free() } else { lock };
        Ok(Seen { lock, hash: Some(stale), own, debris })
    }

    /// What the hash and the timeout keys say of the owner's own holds, and
    /// whether the hash says nothing else. A field is asked for only while
    /// there are fields that nothing is known of.
    fn own(
        &self,
        hash: &Key<'_>,
        mode: Mode,
        owner: &Owner<'_>,
    ) -> Result<(OwnStored, bool), Error> {
        let mut unknown = hash.field_count() - 1;
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
        let slots = self.slots(owner.bytes(), reads, Excess::Refuse)?;
        Ok((OwnStored { reads, slots, writes }, unknown == 0))
    }

    /// Looks at the holds of others, no further than `survey` asks.
    fn others(
        &self,
        hash: &Key<'_>,
        own: &[u8],
        mode: Mode,
        survey: Survey,
    ) -> Result<(Others, Vec<Field>), Error> {
        let mut others = Others::None;
        let mut latest = None;
        let mut debris = Vec::new();
        for field in self.fields(hash, Excess::Refuse) {
            let field = field?;
            if field.owner == own {
                continue;
            }
            match &field.stored {
                Stored::Writes(_) if mode == Mode::Write => others = Others::Writer,
                Stored::Writes(_) => {}
                Stored::Reads(slots) => {
                    latest = latest.max(live_ends(slots).into_iter().max());
                    if latest.is_some() && others == Others::None {
                        others = Others::Readers { latest: None };
                    }
                }
            }
            if field.stored.is_stale(mode) {
                debris.push(field);
            }
            let told = match mode {
                Mode::Read => others != Others::None,
                Mode::Write => others == Others::Writer,
            };
            if told && survey != Survey::Ends {
                return Ok((others, debris));
            }
        }
        if let Others::Readers { latest: known } = &mut others {
            *known = latest;
        }
        Ok((others, debris))
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
                Stored::Reads(slots) => Held::Reads(live_ends(&slots)),
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
        Ok(Some((mode, fields)))
    }
}

/// A command on two keys that never exist is refused exactly while their slot
/// is on its way between nodes: then a lock's timeout keys may be gone before
/// its hash, or come after it.
fn serves_slot(ctx: Ctx<'_>, name: LockName<'_>) -> bool {
    let probe = |number| Text::new(&name.probe(number));
    ctx.can_serve(&probe(1), &probe(2))
}

fn mode_of(hash: &Key<'_>) -> Result<Mode, Error> {
    match hash.hash_get(&WORDS.mode).as_deref().map(Str::bytes) {
        Some(b"read") => Ok(Mode::Read),
        Some(b"write") => Ok(Mode::Write),
        Some(_) => Err(Error::WrongType("the hash has an unknown mode")),
        None => Err(Error::WrongType("the hash has no mode")),
    }
}

fn end_of(hash: &Key<'_>) -> End {
    hash.expiry().map_or(End::Never, End::At)
}
