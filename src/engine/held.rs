//! For how long locks are held: from the moment at which a free lock is taken to the moment at which
//! it is free again. A lock that goes from an owner to a waiter in one step is never free in
//! between: no client could take it there.

use super::state::{Clock, Held, Known, LongHold, Place, Released, Steady, Tenure};
use super::Engine;
use crate::core::{Lock, Millis};
use crate::ffi::Ctx;
use crate::store::{LockRef, Store};

/// A lock, right before a commit or a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// It had no live hold: nobody took it, or all holds lapsed or were removed by others.
    Free,
    /// It had a live hold.
    Held,
}

impl Before {
    /// The lock of a snapshot.
    pub fn of(lock: &Lock) -> Before {
        if lock.is_free() {
            Before::Free
        } else {
            Before::Held
        }
    }
}

impl Engine {
    /// A lock became free after this time. Each tenure of a lock ends here, except that nobody is
    /// told of the locks of an emptied database and of those that move to another node.
    pub(super) fn lock_freed(&mut self, lock: LockRef<'_>, held: Held) {
        if let Some(ms) = held.exactly() {
            self.statistics.hold_times.add(ms);
        }
        if self.is_long(held) {
            self.long_holds.push(LongHold {
                lock: lock.into(),
                held: held.at_least(),
                owner: None,
            });
        }
    }

    /// Whether a lock that was held for so long goes into the log.
    fn is_long(&self, held: Held) -> bool {
        let over = self.settings.log_holds_over;
        over >= 0 && held.at_least() >= over && self.logs()
    }

    /// Notes who was the last holder of a lock that has just become free.
    pub(super) fn note_last_holder(&mut self, lock: LockRef<'_>, owner: &[u8]) {
        if let Some(long) = self.long_holds.last_mut().filter(|long| long.lock.get() == lock) {
            long.owner.get_or_insert_with(|| owner.into());
        }
        let is_long = self.released.last().is_some_and(|released| self.is_long(released.held));
        if let Some(released) = self.released.last_mut().filter(|_| is_long) {
            released.owner.get_or_insert_with(|| owner.into());
        }
    }

    /// Ends the tenure of a lock that has no holds now. If it has a queue and its last hold was
    /// given back, the tenure ends only if no waiter gets the lock in the same work.
    pub(super) fn end_tenure(
        &mut self,
        store: &Store<'_>,
        place: Place,
        before: Before,
        has_queue: bool,
    ) {
        let known = self.memory.at_mut(place);
        let Some(known) = known.filter(|known| known.tenure.is_some()) else {
            return;
        };
        let Some(held) = known.tenure.until(steady_of(&self.clock, store)) else {
            return;
        };
        if has_queue && !known.needs_refresh {
            match (known.mode(), before) {
                (Some(_), Before::Held) => {
                    return self.released.push(Released { place, held, owner: None })
                }
                // It is in the list already.
                (None, _) => return,
                (Some(_), Before::Free) => {}
            }
        }
        known.tenure = Tenure::NONE;
        self.lock_freed(store.lock(), held);
    }

    /// Ends the tenures of the locks that were given back and that no waiter got. To be called at
    /// the end of each piece of work, before any client can see these locks.
    pub fn end_released(&mut self, ctx: Ctx<'_>) {
        if !self.released.is_empty() {
            self.end_all_released();
        }
        if !self.long_holds.is_empty() {
            for LongHold { lock, held, owner } in std::mem::take(&mut self.long_holds) {
                self.log_hold(ctx, lock.get(), owner.as_deref(), held);
            }
        }
    }

    #[cold]
    fn end_all_released(&mut self) {
        while let Some(Released { place, held, owner }) = self.released.pop() {
            let Some(known) = self.memory.at_mut(place).filter(|known| is_released(known)) else {
                continue;
            };
            known.tenure = Tenure::NONE;
            let name = known.name().to_vec();
            let lock = LockRef { db: place.db, name: &name };
            self.lock_freed(lock, held);
            if let Some(owner) = owner {
                self.note_last_holder(lock, &owner);
            }
            self.forget_if_idle(lock);
        }
    }

    /// For how long a lock has been held, if it is held. None: unknown.
    pub(super) fn held(&self, ctx: Ctx<'_>, lock: LockRef<'_>) -> Option<Held> {
        held_until(self.memory.get(lock)?, Steady::now(ctx))
    }

    /// For how many ms a lock that ends now was held, for the log. 0: unknown.
    pub(super) fn held_so_far(&self, store: &Store<'_>) -> Millis {
        let known = self.memory.get(store.lock());
        let held = known.and_then(|known| known.tenure.until(steady_of(&self.clock, store)));
        held.map_or(0, Held::at_least)
    }

    /// The number of locks that are held.
    pub fn held_locks_now(&self) -> usize {
        self.memory.held()
    }
}

/// The present time of the steady clock, as far as a command needs it. It is not read from the
/// system if the server's time of the command tells it.
pub(super) fn steady_of(clock: &Clock, store: &Store<'_>) -> Steady {
    clock.steady_of(store.now()).unwrap_or_else(|| Steady::now(store.ctx()))
}

/// Whether a lock was given back, and no waiter has got it yet.
pub(super) fn is_released(known: &Known) -> bool {
    known.mode().is_none() && known.tenure.is_some()
}

/// For how long a lock has been held, if its keys show that it is held. None: unknown.
pub(super) fn held_until(known: &Known, now: Steady) -> Option<Held> {
    let is_certain = known.mode().is_some() && !known.needs_refresh;
    known.tenure.until(now).filter(|_| is_certain)
}
