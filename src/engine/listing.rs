//! LIST: the locks that are held, a page at a time. It changes nothing.

use super::held::held_until;
use super::state::{Held, Known, Steady};
use super::{Engine, Error};
use crate::core::{End, Millis, Mode};
use crate::ffi::{Ctx, Text};
use crate::store::{glob, LockRef, Summary};

/// What LIST asks for.
pub struct ListRequest<'a> {
    /// The cursor of the page before. 0: the first page.
    pub cursor: u64,
    /// Only locks whose names match this pattern.
    pub pattern: Option<&'a [u8]>,
    /// Only locks that have been held for so many ms at least.
    pub held: Option<Millis>,
    /// How many remembered locks to look at.
    pub count: usize,
}

/// A page of the list.
pub struct Page {
    /// The cursor of the next page. 0: this was the last one.
    pub cursor: u64,
    pub locks: Vec<Listed>,
    /// The time of the list, as unix time in ms.
    pub now: Millis,
}

/// A lock in the list.
pub struct Listed {
    pub name: Vec<u8>,
    pub mode: Mode,
    /// The number of holders, as [`super::LockInfo::holders_total`].
    pub holders: usize,
    /// The number of waiters.
    pub waiters: usize,
    pub end: End,
    /// For how many ms it has been held. None: unknown.
    pub held: Option<Millis>,
}

/// How many places of the memory a page visits at most for each lock that it looks at. Places can
/// be free, and a page must not take long because of them.
const PLACES_FOR_EACH: usize = 10;

impl Engine {
    /// Runs LIST. Fails with [`Error::Replica`] on a replica, which remembers no locks. The command
    /// names no keys, so the server cannot check the user's rights to them. This method lists only
    /// locks that the user may read.
    pub fn list(&self, ctx: Ctx<'_>, request: &ListRequest<'_>) -> Result<Page, Error> {
        if !ctx.situation().primary {
            return Err(Error::Replica);
        }
        let (db, user, now) = (ctx.db(), ctx.user(), Steady::now(ctx));
        let is_asked_for = |known: &Known, held: Option<Held>| {
            let is_long_enough = |ms| held.map_or(0, Held::at_least) >= ms;
            request.held.is_none_or(is_long_enough)
                && request.pattern.is_none_or(|pattern| glob::matches(pattern, known.name()))
        };
        let list = |known: &Known| {
            let held = held_until(known, now);
            if !is_asked_for(known, held) || !user.may_read(known.name()) {
                return None;
            }
            let key = Text::new(known.name());
            // The keys decide whether it is held.
            let Summary { mode, holders, end } = Summary::read(db, &key)?;
            let lock = LockRef { db: db.number(), name: known.name() };
            Some(Listed {
                name: known.name().to_vec(),
                mode,
                holders,
                waiters: self.waits.queue(&lock).map_or(0, |queue| queue.len()),
                end,
                held: held.and_then(Held::exactly),
            })
        };
        let mut walk = self.memory.walk(db.number(), request.cursor);
        let places = walk.by_ref().take(request.count.saturating_mul(PLACES_FOR_EACH));
        let locks = places.flatten().take(request.count).filter_map(list).collect();
        Ok(Page { cursor: walk.cursor(), locks, now: ctx.now() })
    }
}
