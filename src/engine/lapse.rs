//! Writing a lock back, and looking at one when its time has come.

use super::alarms::{Alarm, Alarms};
use super::memory::{Known, Place};
use super::notices::What;
use super::{Engine, Error, Scene};
use crate::core::{Announcement, End, Lock, Millis, Mode};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Owner, Seen, Store, Survey};

/// How often a lock that is waited for is looked at when nothing tells of a
/// change: an overwritten key, a slot that moves.
const LOOK_AGAIN: Millis = 1_000;

/// At least so long after each other, where many locks are waited for.
const LOOKS_APART: Millis = 5;

/// How often, while the writer reads as well: a script's downgrade changes
/// nothing but a field of the hash.
const LOOK_AGAIN_MIXED: Millis = 50;

/// How soon what the server would not take now is tried again.
const TRY_AGAIN: Millis = 10;

impl Engine {
    /// Makes the lock that was `seen` into `after`, and remembers it.
    pub(super) fn commit(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
        seen: &Seen,
        owner: &Owner<'_>,
        after: &Lock,
    ) -> Result<(), Error> {
        let last = self.last_owner(scene, store);
        store.commit(seen, owner, after, last.as_deref())?;
        let lapsed = seen.lapsed();
        if lapsed > 0 || seen.has_outlived() {
            self.notice(scene, store, What::Lapsed);
            self.figures.count_lapsed(lapsed);
        }
        self.bindings_follow(scene, store, owner, seen);
        if after.mode() == Some(Mode::Read) {
            self.remember_reader(scene, store, owner.bytes(), &after.own.reads);
        }
        let earliest = after.own.reads.iter().copied().fold(after.end, End::min);
        let gone = seen.lock.own.count().saturating_add(lapsed);
        let holds = |before| after.own.count().saturating_add(before).saturating_sub(gone);
        self.remember(scene, store, after, holds, earliest, Due::NotLater);
        self.remember_last(scene, store, owner.bytes(), after);
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
        work: impl FnOnce(&mut Engine, Scene<'_>, &mut Store<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let scene = Scene::of_command(ctx);
        if self.has_to_clear_up() && !ctx.writes_are_paused() {
            self.clear_up(ctx);
            ctx.select(scene.db);
        }
        let name = Store::check(ctx, key)?;
        let mut store = Store::of(ctx, key, name, Access::Write);
        self.catch_up(scene, &mut store);
        let result = work(self, scene, &mut store);
        store.clear_away();
        result
    }

    /// Brings what is remembered up to what the keys say, when nothing is
    /// remembered or a time has come. Lapsed holds go, and who waits is served.
    pub(super) fn catch_up(&mut self, scene: Scene<'_>, store: &mut Store<'_>) {
        let due = match self.memory.get(scene.db, store.name()) {
            None => store.exists(),
            // Its only hold ends with the key.
            Some(known) if known.is_written_once() && store.exists() => false,
            Some(known) => known.due().is_some_and(|due| store.now() > due),
        };
        if due {
            // What is no lock is for the command to say.
            let _ = self.look_over(scene, store);
        }
    }

    /// Looks at the whole lock: removes what has lapsed, announces what ended,
    /// sets the next alarm and serves the queue.
    pub(super) fn look_over(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
    ) -> Result<(), Error> {
        if let Some(earliest) = self.lapse_readers(scene, store) {
            let owner = Owner::nobody();
            let seen = self.look(scene, store, &owner, Survey::Mode)?;
            if !seen.lock.is_free() {
                let earliest = earliest.min(seen.lock.end);
                self.remember(scene, store, &seen.lock, |holds| holds, earliest, Due::Exactly);
                self.serve(scene, store);
                return Ok(());
            }
        }
        let owner = Owner::nobody();
        let seen = match store.look(&owner, Survey::Ends) {
            Ok(seen) => seen,
            Err(error) => {
                self.remember(scene, store, &Lock::free(), |_| 0, End::Never, Due::Exactly);
                self.fail_queue(scene, store, &Error::Store(error.clone()));
                return Err(error.into());
            }
        };
        let known = self.memory.get(scene.db, store.name());
        let before = known.and_then(|known| Some((known.mode?, known.holds)));
        let mut after = seen.lock.clone();
        if after.mode() == Some(Mode::Read) {
            // Somebody may have shortened the hash's expiry below a reader's.
            after.lengthen_to_readers();
        }
        let last = self.last_owner(scene, store);
        store.commit(&seen, &owner, &after, last.as_deref())?;
        self.bindings_follow(scene, store, &owner, &seen);
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
            self.notice(scene, store, What::Lapsed);
        }
        let earliest = seen.earliest.min(after.end);
        self.remember(scene, store, &after, |_| seen.holds, earliest, Due::Exactly);
        self.remember_readers(scene, store);
        self.remember_last(scene, store, owner.bytes(), &after);
        self.serve(scene, store);
        Ok(())
    }

    /// Remembers a lock and when to look at it again. `holds`: how many it has,
    /// from how many it had.
    pub(super) fn remember(
        &mut self,
        scene: Scene<'_>,
        store: &Store<'_>,
        lock: &Lock,
        holds: impl FnOnce(u64) -> u64,
        earliest: End,
        how: Due,
    ) {
        let name = store.name();
        let mode = lock.mode();
        if mode.is_none() {
            self.unbind_lock(scene.db, name);
            let Some(place) = self.memory.place(scene.db, name) else {
                return;
            };
            if self.memory.at(place).is_some_and(|known| known.queue.is_none()) {
                self.forget_at(place);
                return;
            }
        }
        let queues = self.queues;
        let (place, known) = self.memory.entry(scene.db, name);
        known.mode = mode;
        if mode != Some(Mode::Write) {
            known.set_token(None);
        }
        known.holds = u32::try_from(holds(known.holds.into())).unwrap_or(u32::MAX);
        if mode != Some(Mode::Read) {
            known.readers = None;
        }
        let mut due = match (mode, earliest) {
            (Some(_), End::At(at)) => Some(at),
            _ => None,
        };
        if known.queue.is_some() {
            due = sooner(due, Some(store.now() + look_again(queues, store, mode)));
        }
        if how == Due::NotLater && mode.is_some() {
            due = sooner(due, known.due());
        }
        set_due(&mut self.alarms, place, known, due);
    }

    /// Forgets the lock that is remembered there.
    pub(super) fn forget_at(&mut self, place: Place) {
        self.memory.remove(place);
        self.alarms.silence(place);
    }

    /// Has a lock looked at soon, for the server takes no writes now.
    pub(super) fn try_again(&mut self, scene: Scene<'_>, store: &Store<'_>) {
        self.look_by(scene, store, End::At(store.now() + TRY_AGAIN));
    }

    /// Has a lock looked at when another of its times comes.
    pub(super) fn look_by(&mut self, scene: Scene<'_>, store: &Store<'_>, end: End) {
        self.look_at(scene.db, store.name(), end);
    }

    /// The same.
    pub(super) fn look_at(&mut self, db: i32, name: &[u8], end: End) {
        if let End::At(at) = end {
            let (place, known) = self.memory.entry(db, name);
            let due = sooner(known.due(), Some(at));
            set_due(&mut self.alarms, place, known, due);
        }
    }

    /// Has a lock's queue served as soon as may be.
    pub(super) fn serve_now(&mut self, db: i32, name: &[u8]) {
        self.look_at(db, name, End::At(0));
    }

    /// Has a lock that somebody else has changed looked at as soon as may be.
    pub(super) fn look_now(&mut self, db: i32, name: &[u8]) {
        let (place, known) = self.memory.entry(db, name);
        known.readers = None;
        set_due(&mut self.alarms, place, known, Some(0));
    }
}

/// How a look bears on the alarm of a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// All its holds were looked at.
    Exactly,
    /// There may be others, that end earlier.
    NotLater,
}

/// How soon a lock in this mode that is waited for is to be looked at again, where
/// so many are waited for.
pub(super) fn look_again(queues: usize, store: &Store<'_>, mode: Option<Mode>) -> Millis {
    if mode == Some(Mode::Write) && store.field_count() > 2 {
        return LOOK_AGAIN_MIXED;
    }
    let queues = Millis::try_from(queues).unwrap_or(Millis::MAX);
    queues.saturating_mul(LOOKS_APART).max(LOOK_AGAIN)
}

fn sooner(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

pub(super) fn set_due(alarms: &mut Alarms, place: Place, known: &mut Known, due: Option<Millis>) {
    if known.due() == due {
        return;
    }
    match due {
        Some(due) => alarms.add(due, Alarm::Lock(place)),
        None => alarms.silence(place),
    }
    known.set_due(due);
}
