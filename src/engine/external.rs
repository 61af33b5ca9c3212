//! What others do to locks: it is noted, and what is due by it is done later.

use super::schedule::set_timer;
use super::state::{LockId, Returns, Settings, Sweep, Unserved};
use super::Engine;
use crate::core::Mode;
use crate::store::{locks_of_key, LockRef};

/// Something that changed behind the engine's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key's lease or life: it got or lost an expiry.
    Expiry(i32, Vec<u8>),
    /// A key lapsed.
    Lapsed(i32, Vec<u8>),
    /// The engine has met a key that had lapsed, and goes on with what came after.
    MetLapsed(i32, Vec<u8>),
    /// A key is gone, or another one has taken its place.
    Replaced(i32, Vec<u8>),
    /// A key came from elsewhere, by RESTORE. Its slot may still be another node's.
    Arrived(i32, Vec<u8>),
    /// A key has another name now, or is in another database.
    Moved {
        /// Where it was.
        from: (i32, Vec<u8>),
        /// Where it is, in the place of what was there.
        to: (i32, Vec<u8>),
    },
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
            Change::Lapsed(db, key) => {
                // A script may take the lock before anybody looks at it.
                let lock = LockRef { db, name: &key };
                if let Some(known) = self.memory.get_mut(lock) {
                    known.forget_token();
                }
                self.untrack_lock(lock);
                self.untrack_hold_of(db, &key);
                self.note_lapsed(db, &key);
            }
            Change::MetLapsed(db, key) => {
                // A script may take the lock before anybody looks at it. But what was
                // tracked since is a later hold.
                let lock = LockRef { db, name: &key };
                for id in self.tracked.of_lock_before(lock) {
                    self.untrack(id);
                }
                self.note_lapsed(db, &key);
            }
            Change::Replaced(db, key) => {
                self.note_replaced(db, &key);
                self.note_key(db, &key);
            }
            Change::Arrived(db, key) => self.note_arrived(db, &key),
            Change::Moved { from, to } => self.note_moved(from, to),
            Change::Flushed(db) => {
                self.untrack_db(db);
                match db {
                    Some(db) => self.note_db(db),
                    None => self.memory.dbs().for_each(|db| self.note_db(db)),
                }
            }
            Change::Swapped(one, other) => self.note_swapped(one, other),
            Change::Everything => {
                self.memory.dbs().for_each(|db| self.note_db(db));
                for lock in self.tracked.locks(None) {
                    self.schedule_changed(lock.get());
                }
                self.start_sweep();
            }
            Change::Disconnected(client) => self.note_disconnected(client),
            Change::Settings(settings) => self.set(settings),
        }
    }

    /// The engine is about to be used. Work that a panic has ended delays nobody.
    pub fn begin_work(&mut self) {
        self.tracked.begin_work();
        self.serve_delayed();
    }

    /// Whether a connection has holds bound to it.
    pub fn has_session(&self, client: u64) -> bool {
        self.tracked.of_client(client).next().is_some()
    }

    /// Whether any lock is remembered: if not, no key matters.
    pub fn remembers_locks(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Whether a change of this key may matter.
    pub fn concerns(&self, db: i32, key: &[u8]) -> bool {
        let lock = LockRef { db, name: key };
        self.memory.get(lock).is_some()
            || self.tracked.has(lock)
            || locks_of_key(key).next().is_some()
    }

    fn note_key(&mut self, db: i32, key: &[u8]) {
        let lock = LockRef { db, name: key };
        if self.memory.get(lock).is_some() {
            self.schedule_changed(lock);
        }
        for name in locks_of_key(key) {
            self.schedule_changed(LockRef { db, name: &name });
        }
    }

    /// A lock that was known is another one now. One that was not is looked at if this server
    /// serves it, now or later.
    fn note_arrived(&mut self, db: i32, key: &[u8]) {
        self.note_replaced(db, key);
        let of_timeout: Vec<Vec<u8>> = locks_of_key(key).collect();
        for name in of_timeout.iter().map(Vec::as_slice).chain([key]) {
            let lock = LockRef { db, name };
            match self.memory.get(lock) {
                Some(_) => self.schedule_changed(lock),
                None => self.unserved.add(lock.into()),
            }
        }
    }

    /// A key has lapsed, often because we looked at it. What is remembered of
    /// its lock's readers says when they end, so it is true still: a lock with
    /// thousands is not looked at as a whole for each that lapses.
    fn note_lapsed(&mut self, db: i32, key: &[u8]) {
        let lock = LockRef { db, name: key };
        if self.memory.get(lock).is_some() {
            self.schedule_now(lock);
        }
        for name in locks_of_key(key) {
            self.schedule_now(LockRef { db, name: &name });
        }
    }

    /// What it was is over, and nobody is told that it lapsed. Its holds have ended.
    fn note_replaced(&mut self, db: i32, key: &[u8]) {
        let lock = LockRef { db, name: key };
        self.untrack_lock(lock);
        self.untrack_hold_of(db, key);
        self.forget_mode(lock);
    }

    /// Somebody else may hold it now, in another mode.
    pub(super) fn forget_mode(&mut self, lock: LockRef<'_>) {
        if let Some(known) = self.memory.get_mut(lock) {
            known.mode = None;
            known.forget_token();
        }
    }

    /// The holds on a lock go where its hash goes. The timeout keys of read holds
    /// do not: so those end there, unless the hash comes back before somebody looks. What
    /// is known of the lock goes with it, so that it is known when it comes back. But no
    /// timer looks at readers meanwhile.
    fn note_moved(&mut self, (db, key): (i32, Vec<u8>), (to_db, to_key): (i32, Vec<u8>)) {
        let (from, to) = (LockRef { db, name: &key }, LockRef { db: to_db, name: &to_key });
        let known = self.memory.get(from);
        let moved =
            known.map(|known| (known.mode, known.holds, known.due(), known.last_owner().cloned()));
        self.note_replaced(to_db, &to_key);
        self.tracked.relocate([(LockId::from(from), LockId::from(to))]);
        self.note_replaced(db, &key);
        self.note_key(db, &key);
        self.note_key(to_db, &to_key);
        if self.tracked.has(to) || self.memory.get(to).is_some() {
            self.schedule_changed(to);
        } else if let Some((Some(mode), holds, due, last)) = moved {
            let (place, known) = self.memory.entry(to);
            (known.mode, known.holds, known.is_unseen) = (Some(mode), holds, true);
            known.set_last_owner(last);
            let due = due.filter(|_| mode == Mode::Write);
            set_timer(&mut self.timers, place, known, due);
        }
    }

    /// Whatever a database held, it is over. What was remembered of a million
    /// locks goes at once; who waits goes on waiting.
    fn note_db(&mut self, db: i32) {
        self.forget_db(db);
        self.schedule_queues(|lock| lock.db == db);
    }

    /// The locks of these databases have changed places, and who waits has not.
    fn note_swapped(&mut self, one: i32, other: i32) {
        let there = |lock: LockId| {
            let db = if lock.db == one { other } else { one };
            (lock.clone(), LockId { db, ..lock })
        };
        let tracked = [one, other].map(|db| self.tracked.locks(Some(db)));
        self.tracked.relocate(tracked.into_iter().flatten().map(there));
        self.memory.swap(one, other);
        self.timers.swap(one, other);
        if self.sweep.is_running() {
            // What it has not met may be where it has been already.
            self.start_sweep();
        }
        self.schedule_queues(|lock| lock.db == one || lock.db == other);
    }

    /// Forgets the locks of a database.
    fn forget_db(&mut self, db: i32) {
        self.garbage.add(self.memory.take(db), self.timers.take(db));
    }

    /// Has the locks looked at that are waited for: whoever held them may hold them no
    /// more.
    fn schedule_queues(&mut self, of: impl Fn(&LockId) -> bool) {
        let locks: Vec<LockId> = self.waits.locks().filter(|lock| of(lock)).cloned().collect();
        for lock in locks {
            if let Some(queue) = self.waits.queue_mut(&lock) {
                queue.writer = None;
            }
            self.schedule_changed(lock.get());
        }
    }

    /// Forgets all but who waits: another server is the primary now.
    pub fn retire(&mut self) {
        self.memory.dbs().for_each(|db| self.forget_db(db));
        self.unserved = Unserved::default();
        self.waits.needs_search = false;
        self.sweep = Sweep::default();
        self.untrack_db(None);
        self.returns = Returns::default();
    }
}
