//! Writing a lock back, and looking at one when its time has come.

use super::alarms::{Alarm, Alarms};
use super::bindings::Returned;
use super::clock::Moment;
use super::intervals;
use super::memory::{Known, Place};
use super::pass::Pass;
use super::{Engine, Error};
use crate::core::{Announcement, End, Lock, Millis, Mode};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{LockRef, Owner, Seen, Store, Survey, What};

impl Engine {
    /// Makes the lock that was `seen` into `after`, and remembers it.
    pub(super) fn commit(
        &mut self,
        store: &mut Store<'_>,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
    ) -> Result<(), Error> {
        self.commit_return(store, seen, owner, after, Returned::Nothing)
    }

    /// The same, where the owner gives something back.
    pub(super) fn commit_return(
        &mut self,
        store: &mut Store<'_>,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
        returned: Returned,
    ) -> Result<(), Error> {
        let last = self.last_owner(store);
        store.commit(seen, owner, after, last.as_deref())?;
        let lapsed = seen.lapsed();
        if lapsed > 0 || seen.has_outlived() {
            store.notice(What::Lapsed);
            self.figures.count_lapsed(lapsed);
        }
        self.follow(store, owner.bytes(), seen, after, returned);
        if after.mode() == Some(Mode::Read) {
            self.remember_reader(store, owner.bytes(), &after.own.reads);
        }
        let earliest = after.own.reads.iter().copied().fold(after.end, End::min);
        let gone = seen.lock.own.count().saturating_add(lapsed);
        let holds = |before| after.own.count().saturating_add(before).saturating_sub(gone);
        self.remember(store, after, holds, earliest, Due::NotLater);
        self.remember_last(store, owner.bytes(), after);
        Ok(())
    }

    /// Runs a command that writes: what lost connections held goes before it
    /// looks, and what has lapsed. Here and not returned, for a [`Store`] is
    /// larger than it is quick to move.
    #[inline(always)]
    pub(super) fn on_lock<R>(
        &mut self,
        ctx: Ctx<'_>,
        key: &Str,
        work: impl FnOnce(&mut Engine, &mut Store<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let db = ctx.db();
        if self.has_to_clear_up() && !ctx.writes_are_paused() {
            let pass = Pass::begin(self.now(ctx));
            self.clear_up(ctx, &pass);
        }
        let name = Store::check(db, key, Access::Write)?;
        if (self.has_to_clear_up() || !self.not_yet.is_empty()) && !ctx.writes_are_paused() {
            self.clear_up_lock(ctx, LockRef { db: db.number(), name: key.bytes() });
        }
        let mut store = Store::of(db, key, name, Access::Write);
        store.allow();
        self.catch_up(&mut store);
        let result = work(self, &mut store);
        store.clear_away();
        result
    }

    /// Brings what is remembered up to what the keys say, when nothing is
    /// remembered or a time has come. Lapsed holds go, and who waits is served.
    pub(super) fn catch_up(&mut self, store: &mut Store<'_>) {
        let due = match self.memory.get(store.lock()) {
            None => store.exists(),
            // Somebody was to hold it: it has lapsed, and its time may have been
            // put off, as while writes were paused.
            Some(known) if known.mode.is_some() && !store.exists() => true,
            // Its only hold ends with the key.
            Some(known) if known.is_written_once() && !self.has_queue(store) => false,
            Some(known) => known.due().is_some_and(|due| self.clock.when(store.now()) > due),
        };
        if due {
            // What is no lock is for the command to say.
            let _ = self.look_over(store);
        }
    }

    /// Looks at the whole lock: removes what has lapsed, announces what ended,
    /// sets the next alarm and serves the queue.
    pub(super) fn look_over(&mut self, store: &mut Store<'_>) -> Result<(), Error> {
        if let Some(earliest) = self.lapse_readers(store) {
            let owner = Owner::nobody();
            let seen = self.look(store, &owner, Survey::Mode);
            // Whatever else it is, the look below goes through all of it.
            if let Some(seen) = seen.ok().filter(|seen| !seen.lock.is_free()) {
                let earliest = earliest.min(seen.lock.end);
                self.remember(store, &seen.lock, |holds| holds, earliest, Due::Exactly);
                self.serve(store);
                return Ok(());
            }
        }
        let owner = Owner::nobody();
        let seen = match store.look(&owner, Survey::Ends) {
            Ok(seen) => seen,
            Err(error) => {
                self.remember(store, &Lock::free(), |_| 0, End::Never, Due::Exactly);
                self.fail_queue(store, &Error::Store(error.clone()));
                return Err(error.into());
            }
        };
        let known = self.memory.get(store.lock());
        let before = known.and_then(|known| Some((known.mode?, known.holds)));
        let mut after = seen.lock.clone();
        if after.mode() == Some(Mode::Read) {
            // Somebody may have shortened the hash's expiry below a reader's.
            after.lengthen_to_readers();
        }
        let last = self.last_owner(store);
        store.commit(&seen, &owner, &after, last.as_deref())?;
        self.follow(store, owner.bytes(), &seen, &after, Returned::Nothing);
        self.verify_tracked(store);
        self.figures.count_lapsed(seen.lapsed());
        if let (false, Some((mode, holds))) = (seen.has_hash(), before) {
            let ended = match mode {
                Mode::Read => Announcement::ReadFreed,
                Mode::Write => Announcement::WriteEnded,
            };
            store.announce(Some(ended), last.as_deref().unwrap_or_default());
            self.figures.count_lapsed(holds.into());
        }
        if seen.has_lapsed() || !seen.has_hash() && before.is_some() {
            store.notice(What::Lapsed);
        }
        let earliest = seen.earliest.min(after.end);
        self.remember(store, &after, |_| seen.holds, earliest, Due::Exactly);
        self.remember_readers(store);
        self.remember_last(store, owner.bytes(), &after);
        if self.has_queue(store) {
            // Others (SWAPDB, a script) may have made holders of some who wait.
            for owner in self.waiting_among(store).unwrap_or_default() {
                self.serve_holder(store, &owner);
            }
        }
        self.serve(store);
        Ok(())
    }

    /// Remembers a lock and when to look at it again. `holds`: how many it has,
    /// from how many it had.
    pub(super) fn remember(
        &mut self,
        store: &Store<'_>,
        after: &Lock,
        holds: impl FnOnce(u64) -> u64,
        earliest: End,
        how: Due,
    ) {
        let lock = store.lock();
        let mode = after.mode();
        if mode.is_none() {
            self.untrack_lock(lock);
            let Some(place) = self.memory.place(lock) else {
                return;
            };
            if !self.has_queue(store) {
                self.forget_at(place);
                return;
            }
        }
        let (place, known) = self.memory.entry(lock);
        known.mode = mode;
        if mode != Some(Mode::Write) {
            known.forget_token();
        }
        known.holds = u32::try_from(holds(known.holds.into())).unwrap_or(u32::MAX);
        if mode != Some(Mode::Read) {
            known.readers = None;
        }
        let mut due = match (mode, earliest) {
            (Some(_), End::At(at)) => Some(self.clock.when(at)),
            _ => None,
        };
        if how == Due::NotLater {
            // A free lock has times too: the end of a reservation, the next try.
            due = sooner(due, known.due());
        }
        set_due(&mut self.alarms, place, known, due);
        if self.has_queue(store) {
            self.look_within(store, intervals::of_queue(self.waits.queue_count(), store, mode));
        }
    }

    /// Forgets the lock that is remembered there.
    pub(super) fn forget_at(&mut self, place: Place) {
        self.memory.remove(place);
        self.alarms.silence(place);
    }

    /// Has a lock looked at soon, for the server takes no writes now.
    pub(super) fn try_again(&mut self, store: &Store<'_>) {
        self.look_within(store, intervals::of_refused_grant(self.waits.queue_count()));
    }

    /// Has a lock looked at in so many ms at the latest.
    pub(super) fn look_within(&mut self, store: &Store<'_>, ms: Millis) {
        let known = self.memory.get(store.lock());
        // Most often there is an earlier one, and no need to look at the clocks.
        let at = self.clock.when(store.now()).after(ms);
        if known.and_then(Known::due).is_none_or(|due| due > at) {
            let at = self.within(store.ctx(), ms);
            self.look_at(store.lock(), at);
        }
    }

    /// Has a lock looked at when another of its times comes.
    pub(super) fn look_by(&mut self, store: &Store<'_>, end: End) {
        if let End::At(at) = end {
            self.look_at(store.lock(), self.clock.when(at));
        }
    }

    /// Has a lock looked at then, or before.
    pub(super) fn look_at(&mut self, lock: LockRef<'_>, at: Moment) {
        let (place, known) = self.memory.entry(lock);
        let due = sooner(known.due(), Some(at));
        set_due(&mut self.alarms, place, known, due);
    }

    /// Has a lock's queue served as soon as may be.
    pub(super) fn serve_now(&mut self, lock: LockRef<'_>) {
        self.look_at(lock, Moment::PAST);
    }

    /// Has a lock that somebody else has changed looked at as soon as may be.
    pub(super) fn look_now(&mut self, lock: LockRef<'_>) {
        self.tracked.doubt(lock);
        let (place, known) = self.memory.entry(lock);
        known.readers = None;
        set_due(&mut self.alarms, place, known, Some(Moment::PAST));
    }
}

/// How a look bears on the alarm of a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// All its holds were looked at, and its queue is served next, which sets
    /// the times that the queue waits for. The only look that may set the alarm
    /// later than it was.
    Exactly,
    /// There may be other times, earlier ones.
    NotLater,
}

fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

pub(super) fn set_due(alarms: &mut Alarms, place: Place, known: &mut Known, due: Option<Moment>) {
    if known.due() == due {
        return;
    }
    match due {
        Some(due) => alarms.add(due, Alarm::Lock(place)),
        None => alarms.silence(place),
    }
    known.set_due(due);
}
