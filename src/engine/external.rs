//! External changes: what happens to locks without a command of the module. A change is noted here;
//! a timer or the next command acts on it.

use super::schedule::set_timer;
use super::state::{LockId, Returns, Settings, Sweep, Unserved};
use super::Engine;
use crate::core::Mode;
use crate::store::{locks_of_key, LockRef};

/// An external change, or an event of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key got an expiry or lost it.
    Expiry(i32, Vec<u8>),
    /// The key lapsed, outside of the engine's work.
    Lapsed(i32, Vec<u8>),
    /// The key lapsed in the middle of the engine's work. The engine may have written the lock
    /// again since.
    MetLapsed(i32, Vec<u8>),
    /// The key was deleted or overwritten.
    Replaced(i32, Vec<u8>),
    /// RESTORE created the key. Another node may still own its slot.
    Arrived(i32, Vec<u8>),
    /// RENAME or MOVE gave the key another name or database.
    Moved {
        /// The database and name before the move.
        from: (i32, Vec<u8>),
        /// The database and name after it. A key that was there is overwritten.
        to: (i32, Vec<u8>),
    },
    /// The database was emptied. None: all databases were.
    Flushed(Option<i32>),
    /// SWAPDB exchanged the contents of these two databases.
    Swapped(i32, i32),
    /// Slots came to this node together with their keys.
    SlotsArrived,
    /// Slots left this node together with their keys. The deletion of each key is noted as well.
    SlotsLeft,
    /// Any key may have changed: the server loaded a file or became a primary, or a panic ended
    /// some work.
    Everything,
    /// The connection of this client closed.
    Disconnected(u64),
    /// An operator changed the settings.
    Settings(Settings),
}

impl Engine {
    /// Notes a change, and schedules the work that follows from it. Writes no key.
    pub fn note(&mut self, change: Change) {
        match change {
            Change::Expiry(db, key) => self.note_key(db, &key),
            Change::Lapsed(db, key) => {
                // A script may acquire the lock before its next refresh. So the token and the
                // tracked holds end now, and the refresh does not take such a hold for the old one.
                let lock = LockRef { db, name: &key };
                if let Some(known) = self.memory.get_mut(lock) {
                    known.forget_token();
                    known.needs_refresh = true;
                }
                self.untrack_lock(lock);
                self.untrack_hold_of(db, &key);
                self.note_lapsed(db, &key);
            }
            Change::MetLapsed(db, key) => {
                // A script may acquire the lock before its next refresh. So the tracked holds end
                // now, except those that were added after this work began: they are later holds.
                let lock = LockRef { db, name: &key };
                for id in self.tracked.of_lock_before_work(lock) {
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
            Change::SlotsArrived => self.sweep_again(),
            Change::SlotsLeft => self.schedule_queues(|_| true),
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

    /// Prepares for the next use case. If a panic ended the last one, the queues that it delayed
    /// are scheduled.
    pub fn begin_work(&mut self) {
        self.tracked.begin_work();
        if self.returns.is_in_progress() {
            self.serve_delayed();
        }
    }

    /// Whether holds are bound to the connection of this client.
    pub fn has_session(&self, client: u64) -> bool {
        self.tracked.of_client(client).next().is_some()
    }

    /// Whether any lock was ever remembered. If not, no external change matters.
    pub fn remembers_locks(&self) -> bool {
        self.memory.was_used()
    }

    /// Whether a change of this key may matter to the engine.
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

    /// The key belongs to a new lock. A lock that the engine knows is refreshed. One that it does
    /// not know is read as soon as this node serves it.
    fn note_arrived(&mut self, db: i32, key: &[u8]) {
        self.note_replaced(db, key);
        let of_timeout_key: Vec<Vec<u8>> = locks_of_key(key).collect();
        for name in of_timeout_key.iter().map(Vec::as_slice).chain([key]) {
            let lock = LockRef { db, name };
            match self.memory.get(lock) {
                Some(_) => self.schedule_changed(lock),
                None => self.unserved.add(lock.into()),
            }
        }
    }

    /// A key lapsed, often because the engine read it. What the engine remembers of the lock's
    /// readers stays valid, because it contains when each of them ends. So a lock with thousands of
    /// readers is not read as a whole each time one of them lapses.
    fn note_lapsed(&mut self, db: i32, key: &[u8]) {
        let lock = LockRef { db, name: key };
        if self.memory.get(lock).is_some() {
            self.schedule_now(lock);
        }
        for name in locks_of_key(key) {
            self.schedule_now(LockRef { db, name: &name });
        }
    }

    /// Ends the holds of a lock whose key was deleted or overwritten. No lapse is announced for
    /// them.
    fn note_replaced(&mut self, db: i32, key: &[u8]) {
        let lock = LockRef { db, name: key };
        self.untrack_lock(lock);
        self.untrack_hold_of(db, key);
        self.memory.forget_mode(lock);
    }

    /// Moves what is known of a lock with its hash. Its timeout keys stay behind, so its read holds
    /// end at the next refresh, unless the hash is back by then. For that reason a moved lock in
    /// read mode gets no timer.
    fn note_moved(&mut self, (db, key): (i32, Vec<u8>), (to_db, to_key): (i32, Vec<u8>)) {
        let (from, to) = (LockRef { db, name: &key }, LockRef { db: to_db, name: &to_key });
        let known = self.memory.get(from);
        let moved = known
            .map(|known| (known.mode(), known.holds, known.due(), known.last_owner().cloned()));
        self.note_replaced(to_db, &to_key);
        self.tracked.relocate([(LockId::from(from), LockId::from(to))]);
        self.note_replaced(db, &key);
        self.note_key(db, &key);
        self.note_key(to_db, &to_key);
        if self.tracked.has(to) || self.memory.get(to).is_some() {
            self.schedule_changed(to);
        } else if let Some((Some(mode), holds, due, last)) = moved {
            let (place, known, _) = self.memory.set_mode(to, Some(mode));
            (known.holds, known.needs_refresh) = (holds, true);
            known.set_last_owner(last);
            let due = due.filter(|_| mode == Mode::Write);
            set_timer(&mut self.timers, place, known, due);
        }
    }

    /// Forgets the locks of an emptied database, even a million of them, in one step. Its waiters
    /// stay.
    fn note_db(&mut self, db: i32) {
        self.forget_db(db);
        self.schedule_queues(|lock| lock.db == db);
    }

    /// Exchanges what is known of two databases. Waiters stay with the name that they wait for.
    fn note_swapped(&mut self, one: i32, other: i32) {
        let exchanged = |lock: LockId| {
            let db = if lock.db == one { other } else { one };
            (lock.clone(), LockId { db, ..lock })
        };
        let tracked = [one, other].map(|db| self.tracked.locks(Some(db)));
        self.tracked.relocate(tracked.into_iter().flatten().map(exchanged));
        self.memory.swap(one, other);
        self.timers.swap(one, other);
        if self.sweep.is_running() {
            // A key that the sweep has not reached may now be in a database that it has finished.
            self.start_sweep();
        }
        self.schedule_queues(|lock| lock.db == one || lock.db == other);
    }

    fn forget_db(&mut self, db: i32) {
        self.garbage.add(self.memory.take(db), self.timers.take(db));
    }

    /// Schedules the waited-for locks of the given databases now, because their holders may be
    /// gone.
    fn schedule_queues(&mut self, is_meant: impl Fn(&LockId) -> bool) {
        let locks: Vec<LockId> =
            self.waits.locks().filter(|lock| is_meant(lock)).cloned().collect();
        for lock in locks {
            self.schedule_changed(lock.get());
        }
    }

    /// Forgets all locks, because the server's role changed. Waiters and their answers stay.
    pub fn retire(&mut self) {
        self.memory.dbs().for_each(|db| self.forget_db(db));
        self.unserved = Unserved::default();
        self.waits.needs_search = false;
        self.sweep = Sweep::default();
        self.untrack_db(None);
        self.returns = Returns::default();
    }
}
