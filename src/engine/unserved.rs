//! Locks that nobody has named in a command of this server, and that it could not look at
//! when it met them: their keys came before their slot did, or the cluster was down. They are
//! tried again until they are served or gone, so that their holds lapse on time, and are
//! announced, also when nobody comes by.

use super::intervals;
use super::pass::Pass;
use super::Engine;
use crate::ffi::{Access, Ctx, Db, Text};
use crate::store::{self, Owner, ReadScope, Store};

impl Engine {
    /// Tries the locks that could not be looked at.
    pub(super) fn try_unserved(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        while let Some(lock) = self.unserved.take(pass.now) {
            let db = ctx.in_db(lock.db);
            let key = Text::new(&lock.name);
            if self.discover(db, &key).is_err() && store::is_here(db, &key) {
                self.unserved.retry(lock);
            } else {
                self.unserved.remove(&lock);
            }
            if pass.is_over() {
                self.unserved.pause(pass.now.after(intervals::UNSERVED_PAUSE));
            }
        }
    }

    /// Looks at a key that nobody has named in a command, and that may be a lock. The error
    /// says why it cannot be looked at now.
    pub(super) fn discover(&mut self, db: Db<'_>, key: &Text) -> Result<(), store::Error> {
        // One that ends in a panic is left alone.
        self.step(|engine| engine.try_to_adopt(db, key)).unwrap_or(Ok(()))
    }

    fn try_to_adopt(&mut self, db: Db<'_>, key: &Text) -> Result<(), store::Error> {
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
