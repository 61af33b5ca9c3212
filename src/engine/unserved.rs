//! Locks that no command has named and that this node could not read when it found them: their keys
//! arrived before their slot, or the cluster was down. The engine tries them again until they are
//! served or gone. So their holds lapse and are announced on time even if no command names them.

use super::intervals;
use super::open_locks::OpenNames;
use super::pass::Pass;
use super::Engine;
use crate::ffi::{Access, Ctx, Db, Text};
use crate::store::{self, Owner, ReadScope, Store};

impl Engine {
    /// Tries again to read the locks that could not be read.
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

    /// Examines a key that no command has named, and refreshes it if it is a held lock. The error
    /// says why it cannot be read now.
    pub(super) fn discover(&mut self, db: Db<'_>, key: &Text) -> Result<(), store::Error> {
        // A panic must not stop the search for other locks. This key is then skipped.
        self.step(|engine| engine.discover_in_step(db, key)).unwrap_or(Ok(()))
    }

    fn discover_in_step(&mut self, db: Db<'_>, key: &Text) -> Result<(), store::Error> {
        // To open a key for writing changes its idle time. So that is done only for a lock.
        match Store::open(db, key, Access::Read) {
            Ok(store) if is_a_lock(&store) => {}
            Err(error) if error.is_unserved() => return Err(error),
            _ => return Ok(()),
        }
        let names = OpenNames::default();
        let opened = Store::open(db, key, Access::Write);
        match opened {
            Ok(mut store) => {
                // An error means that the key is no lock, and no client waits for this result.
                let _ = self.on_store(&mut store, &names).refresh();
                Ok(())
            }
            Err(error) if error.is_unserved() => Err(error),
            Err(_) => Ok(()),
        }
    }
}

/// Whether this hash is a held lock. It may be any hash with a field `mode`, because no command has
/// named it. A lock without holders needs no refresh: it ends by its own expiry.
fn is_a_lock(store: &Store<'_>) -> bool {
    store
        .snapshot(&Owner::nobody(), ReadScope::Presence)
        .is_ok_and(|snapshot| !snapshot.lock.is_free())
}
