//! What others do to locks, and what the clock does.

use super::alarms::Alarm;
use super::lapse::set_due;
use super::memory::{Known, LockId};
use super::sessions::Grant;
use super::wait::{Answer, Waiter};
use super::{Engine, Error, Scene, Settings};
use crate::core::{Millis, WaiterId};
use crate::ffi::{Access, Ctx, Text, Version};
use crate::store::{self, locks_of_key, Owner, Store};

/// Something that changed behind the engine's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key's lease or life: it got or lost an expiry.
    Expiry(i32, Vec<u8>),
    /// A key lapsed.
    Lapsed(i32, Vec<u8>),
    /// A key is gone, or another one has taken its place.
    Replaced(i32, Vec<u8>),
    /// A database is empty now; None: all.
    Flushed(Option<i32>),
    /// The content of these two has changed places.
    Swapped(i32, i32),
    /// Everything may be different.
    Everything,
    /// A client is gone.
    Disconnected(u64),
    /// An operator has set these.
    Settings(Settings),
}

impl Engine {
    /// Takes note; the alarm, or the next command that comes by, does the rest.
    pub fn note(&mut self, change: Change) {
        match change {
            Change::Expiry(db, key) => self.note_key(db, &key),
            Change::Lapsed(db, key) => self.note_lapsed(db, &key),
            Change::Replaced(db, key) => {
                self.note_replaced(db, &key);
                self.note_key(db, &key);
            }
            Change::Flushed(db) => self.note_db(db),
            Change::Swapped(one, other) => {
                let here = [one, other].map(|db| self.known_in(Some(db)));
                self.note_db(Some(one));
                self.note_db(Some(other));
                // What was known here is there now.
                for (locks, there) in here.iter().zip([other, one]) {
                    locks.iter().for_each(|lock| self.look_now(there, &lock.name));
                }
            }
            Change::Everything => {
                self.note_db(None);
                self.start_sweep();
            }
            Change::Disconnected(client) => {
                for id in self.sessions.of_client(client) {
                    self.gone.push(id);
                }
            }
            Change::Settings(settings) => self.set(settings),
        }
    }

    /// Whether a connection has holds bound to it.
    pub fn has_session(&self, client: u64) -> bool {
        !self.sessions.of_client(client).is_empty()
    }

    /// Whether any lock is remembered: if not, no key matters.
    pub fn remembers_locks(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Whether a change of this key may matter.
    pub fn concerns(&self, db: i32, key: &[u8]) -> bool {
        self.memory.get(db, key).is_some() || locks_of_key(key).next().is_some()
    }

    fn note_key(&mut self, db: i32, key: &[u8]) {
        if self.memory.get(db, key).is_some() {
            self.look_now(db, key);
        }
        for lock in locks_of_key(key) {
            self.look_now(db, &lock);
        }
    }

    /// A key has lapsed, often because we looked at it. What is remembered of
    /// its lock's readers says when they end, so it is true still: a lock with
    /// thousands is not looked at as a whole for each that lapses.
    fn note_lapsed(&mut self, db: i32, key: &[u8]) {
        if self.memory.get(db, key).is_some() {
            self.serve_now(db, key);
        }
        for lock in locks_of_key(key) {
            self.serve_now(db, &lock);
        }
    }

    /// What it was is over, and nobody is told that it lapsed.
    fn note_replaced(&mut self, db: i32, key: &[u8]) {
        if let Some(known) = self.memory.get_mut(db, key) {
            known.mode = None;
            known.set_token(None);
            self.unbind_lock(db, key);
        }
    }

    fn note_db(&mut self, db: Option<i32>) {
        for lock in self.known_in(db) {
            self.note_replaced(lock.db, &lock.name);
            self.look_now(lock.db, &lock.name);
        }
    }

    /// The locks that are remembered, of a database or of all.
    fn known_in(&self, db: Option<i32>) -> Vec<LockId> {
        self.memory.locks(db).map(Known::id).collect()
    }

    /// Forgets all but who waits: another server is the primary now.
    pub fn retire(&mut self) {
        for lock in self.known_in(None) {
            self.note_replaced(lock.db, &lock.name);
            let (place, known) = self.memory.entry(lock.db, &lock.name);
            set_due(&mut self.alarms, place, known, None);
            self.forget_if_idle(lock.db, &lock.name);
        }
        self.sweeping = None;
        self.unsearched = false;
        self.swept = false;
        self.gone.clear();
        self.undelivered.clear();
    }

    /// Sends away who waits at a server that is no primary. Most servers have
    /// done that by now; Valkey 9 does not in a cluster, where it only redirects
    /// those that it knows to wait for a key.
    fn unblock_all(&mut self) {
        while let Some((&id, waiter)) = self.waiters.first_key_value() {
            let waiter = waiter.clone();
            self.answer(id, Answer::Failed(Error::Elsewhere(UNBLOCKED.into())));
            self.leave_queue(id, &waiter);
        }
    }

    /// Does what is due.
    pub fn ring(&mut self, ctx: Ctx<'_>) {
        let situation = ctx.situation();
        let may_write = situation.primary && !situation.loading && !ctx.writes_are_paused();
        if !situation.primary {
            self.unblock_all();
            self.retire();
        } else if may_write {
            self.clear_up(ctx);
            self.sweep(ctx);
        }
        let mut later = Vec::new();
        while let Some(alarm) = self.alarms.take_due(ctx.now()) {
            match alarm {
                Alarm::Waiter(id) => self.time_out(ctx, id),
                alarm if may_write => self.do_alarm(ctx, alarm),
                alarm => later.push(alarm),
            }
        }
        for alarm in later {
            self.put_off(ctx.now() + PUT_OFF, alarm);
        }
        if may_write && std::mem::take(&mut self.unsearched) {
            // All who may get in have got in.
            self.break_all_circles(ctx);
        }
        self.not_before = if may_write { 0 } else { ctx.now() + PUT_OFF };
    }

    /// Does what is due now, where the server takes writes.
    pub(super) fn do_alarms(&mut self, ctx: Ctx<'_>) {
        while let Some(alarm) = self.alarms.take_due(ctx.now()) {
            self.do_alarm(ctx, alarm);
        }
    }

    fn do_alarm(&mut self, ctx: Ctx<'_>, alarm: Alarm) {
        match alarm {
            Alarm::Waiter(id) => self.time_out(ctx, id),
            Alarm::Session(id) => {
                let Some(db) = self.sessions.get(id).map(|binding| binding.lock.db) else {
                    return;
                };
                ctx.select(db);
                let scene = Scene { ctx, db, by_alarm: true };
                // Why ever it could not be renewed: it ends with its lease.
                let _ = self.renew_session(scene, id);
            }
            Alarm::Lock(place) => {
                let Some(known) = self.memory.at_mut(place) else {
                    return;
                };
                known.set_due(None);
                let (db, key) = (known.db(), Text::new(known.name()));
                ctx.select(db);
                let scene = Scene { ctx, db, by_alarm: true };
                let opened = Store::open(ctx, &key, Access::Write);
                match opened {
                    Ok(mut store) => {
                        let _ = self.look_over(scene, &mut store);
                    }
                    Err(error @ store::Error::TryAgain) => {
                        self.slot_is_elsewhere(scene, key.bytes(), error);
                    }
                    // What looked like a key of a lock was none.
                    Err(_) => self.forget_if_idle(db, key.bytes()),
                }
            }
        }
    }

    fn put_off(&mut self, at: Millis, alarm: Alarm) {
        match alarm {
            Alarm::Lock(place) => match self.memory.at_mut(place) {
                Some(known) => known.set_due(Some(at)),
                None => return,
            },
            Alarm::Session(id) => match self.sessions.get_mut(id) {
                Some(binding) => binding.due = at,
                None => return,
            },
            Alarm::Waiter(_) => {}
        }
        self.alarms.add(at, alarm);
    }

    /// Gives back what was held by connections that are gone, and what was
    /// granted to those that never learnt of it.
    pub(super) fn clear_up(&mut self, ctx: Ctx<'_>) {
        for id in std::mem::take(&mut self.gone) {
            let Some(db) = self.sessions.get(id).map(|binding| binding.lock.db) else {
                continue;
            };
            ctx.select(db);
            let scene = Scene { ctx, db, by_alarm: true };
            if self.release_session(scene, id).is_err() {
                self.unbind(id);
            }
        }
        for waiter in std::mem::take(&mut self.undelivered) {
            self.undo(ctx, &waiter);
        }
    }

    pub(super) fn has_to_clear_up(&self) -> bool {
        !self.gone.is_empty() || !self.undelivered.is_empty()
    }

    fn undo(&mut self, ctx: Ctx<'_>, waiter: &Waiter) {
        let Some(Grant { hold, is_new, binding, .. }) = waiter.grant else {
            return;
        };
        ctx.select(waiter.lock.db);
        let scene = Scene { ctx, db: waiter.lock.db, by_alarm: true };
        if let Some(id) = binding {
            // It knows, and may have seen to it already.
            if is_new {
                let _ = self.release_session(scene, id);
            } else {
                self.unbind(id);
            }
            return;
        }
        if !is_new {
            return;
        }
        let (key, name) = (Text::new(&waiter.lock.name), Text::new(&waiter.owner));
        let undone =
            Store::open(ctx, &key, Access::Write).map_err(Error::from).and_then(|mut store| {
                let owner = Owner::new(&name)?;
                self.take_back(scene, &mut store, &owner, hold)
            });
        // What cannot be undone, because it is gone already, is undone.
        let _ = undone;
    }

    /// The answer with this number was, or could not be, delivered.
    pub fn answered(&mut self, ctx: Ctx<'_>, id: WaiterId, delivered: bool) {
        if let Some(waiter) = self.underway.remove(&id) {
            if delivered {
                self.figures.delivered(&waiter, ctx.now());
                self.sessions.tell(waiter.grant);
            } else {
                // An old server leaves a client without any reply that CLIENT
                // UNBLOCK names just now; it would take the reply to its next
                // command for this one's.
                if ctx.version().is_none_or(|version| version < KEEPS_REPLIES) {
                    ctx.close_client(waiter.client);
                }
                self.undelivered.push(waiter);
            }
        }
    }

    /// When there is something to do next.
    pub fn next_alarm(&self) -> Option<Millis> {
        let mut next = self.alarms.first();
        let mut not_later = |at: Millis| next = Some(next.map_or(at, |next| next.min(at)));
        if let Some(sweeping) = &self.sweeping {
            not_later(sweeping.due.max(self.not_before));
        }
        if !self.gone.is_empty() || !self.undelivered.is_empty() || self.unsearched {
            not_later(self.not_before);
        }
        next
    }
}

/// What a server tells those that were blocked when it became a replica.
const UNBLOCKED: &str = "UNBLOCKED force unblock from blocking operation, \
                         instance state changed (master -> replica?)";

/// From here on CLIENT UNBLOCK leaves those alone who have been answered.
const KEEPS_REPLIES: Version = Version { major: 7, minor: 2, patch: 0 };

/// How soon what could not be done is tried again, in ms.
const PUT_OFF: Millis = 10;
