//! Locks that nobody has named in a command of this server, and that it could not look at
//! when it met them: their keys came before their slot did, or the cluster was down. They are
//! tried again until they are served or gone, so that their holds lapse on time, and are
//! announced, also when nobody comes by.

use super::clock::Moment;
use super::intervals;
use super::memory::LockId;
use super::pass::Pass;
use super::Engine;
use crate::ffi::{Access, Ctx, Db, Text};
use crate::store::{self, Owner, ReadScope, Store};
use hashbrown::HashSet;
use std::collections::VecDeque;

/// The locks that are to be tried.
#[derive(Default)]
pub(super) struct Unserved {
    /// In the order in which they are tried.
    queue: VecDeque<LockId>,
    members: HashSet<LockId>,
    /// How many from the front are to be tried in this round.
    this_round: usize,
    /// When to go on.
    due: Moment,
}

impl Unserved {
    /// Adds one that is to be tried at once.
    pub fn add(&mut self, lock: LockId) {
        if self.members.insert(lock.clone()) {
            self.queue.push_front(lock);
            self.this_round += 1;
            self.due = Moment::PAST;
        }
    }

    /// When to go on; None: there is nothing to try.
    pub fn next(&self) -> Option<Moment> {
        (!self.queue.is_empty()).then_some(self.due)
    }

    /// The next that is to be tried now.
    fn take(&mut self, now: Moment) -> Option<LockId> {
        if now <= self.due {
            return None;
        }
        if self.this_round == 0 {
            self.this_round = self.queue.len();
        }
        let next = self.queue.pop_front()?;
        self.this_round -= 1;
        if self.this_round == 0 {
            self.due = now.after(intervals::UNSERVED_ROUND);
        }
        Some(next)
    }
}

impl Engine {
    /// Tries the locks that could not be looked at.
    pub(super) fn try_unserved(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        while let Some(lock) = self.unserved.take(pass.now) {
            let db = ctx.in_db(lock.db);
            let key = Text::new(&lock.name);
            if self.discover(db, &key).is_err() && store::is_here(db, &key) {
                self.unserved.queue.push_back(lock);
            } else {
                self.unserved.members.remove(&lock);
            }
            if pass.is_over() && self.unserved.this_round > 0 {
                self.unserved.due = pass.now.after(intervals::UNSERVED_PAUSE);
            }
        }
        if self.unserved.queue.is_empty() {
            // There may have been many.
            self.unserved = Unserved::default();
        }
    }

    /// Looks at a key that nobody has named in a command, and that may be a lock. The error
    /// says why it cannot be looked at now.
    pub(super) fn discover(&mut self, db: Db<'_>, key: &Text) -> Result<(), store::Error> {
        // To open a key for writing is a use of it, which shows in its idle time: only a lock
        // is opened for that.
        match Store::open(db, key, Access::Read) {
            Ok(store) if is_a_lock(&store) => {}
            Err(error) if error.is_unserved() => return Err(error),
            _ => return Ok(()),
        }
        match Store::open(db, key, Access::Write) {
            Ok(mut store) => {
                // What is no lock after all is nobody's concern here.
                let _ = self.on_store(&mut store).refresh();
                Ok(())
            }
            Err(error) if error.is_unserved() => Err(error),
            Err(_) => Ok(()),
        }
    }
}

/// Nobody has named this hash in a command, and it may be anything that has a
/// field `mode`. One that somebody holds is a lock; one that nobody holds ends
/// by its own expiry.
fn is_a_lock(store: &Store<'_>) -> bool {
    store
        .snapshot(&Owner::nobody(), ReadScope::Presence)
        .is_ok_and(|snapshot| !snapshot.lock.is_free())
}
