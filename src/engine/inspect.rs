//! Looking without touching.

use super::Error;
use crate::core::{End, Kind, Millis, Mode};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Entry, Held, Reserved, Store};

/// All that can be told of a lock.
pub struct Picture {
    /// Its mode; None when it is free.
    pub mode: Option<Mode>,
    /// Its end, when it is held.
    pub end: End,
    /// The holders, an entry for each kind of hold; as many as were asked for.
    pub holders: Vec<Holder>,
    /// How many entries there are.
    pub holders_total: usize,
    /// A writer's reservation.
    pub reserved: Option<Reserved>,
    /// The last fencing token, or 0.
    pub fence: i64,
    /// The time of the look.
    pub now: Millis,
}

/// The holds of one owner and one kind.
pub struct Holder {
    /// Who holds.
    pub owner: Vec<u8>,
    /// The kind of the holds.
    pub kind: Kind,
    /// How many.
    pub holds: u64,
    /// When the last of them ends.
    pub end: End,
}

/// INSPECT: at most `count` holders.
pub fn inspect(ctx: Ctx<'_>, key: &Str, count: usize) -> Result<Picture, Error> {
    let store = Store::open(ctx, key, Access::Read)?;
    let (end, entries) = store.holders()?.unwrap_or((End::Never, Vec::new()));
    Ok(Picture {
        mode: mode(&entries),
        end,
        holders_total: entries.len(),
        holders: entries.into_iter().take(count).map(|entry| holder(entry, end)).collect(),
        reserved: store.reservation()?,
        fence: store.last_token()?,
        now: store.now(),
    })
}

fn mode(entries: &[Entry]) -> Option<Mode> {
    if entries.iter().any(|entry| matches!(entry.held, Held::Writes(_))) {
        Some(Mode::Write)
    } else {
        (!entries.is_empty()).then_some(Mode::Read)
    }
}

fn holder(Entry { owner, held }: Entry, lock_end: End) -> Holder {
    match held {
        Held::Reads(ends) => Holder {
            owner,
            kind: Kind::Read,
            holds: ends.len() as u64,
            end: ends.into_iter().max().unwrap_or(lock_end),
        },
        Held::Writes(holds) => Holder { owner, kind: Kind::Write, holds, end: lock_end },
    }
}
