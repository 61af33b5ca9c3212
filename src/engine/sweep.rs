//! Finding the locks that nobody has touched since this server became their
//! primary: after a restart or a promotion their leases are to end on time too.

use super::{Engine, Scene};
use crate::core::Millis;
use crate::ffi::{Access, Ctx, Sweep};
use crate::store::{Owner, Store, Survey};

/// How far the background sweep has come.
pub(super) struct Sweeping {
    db: i32,
    walk: Sweep,
    /// When to go on.
    pub due: Millis,
}

/// How often the sweep goes on, in ms, and how far: well below a tenth of the
/// server's time.
const PAUSE: Millis = 10;
const STEPS: usize = 500;

impl Engine {
    /// Starts the sweep, from the beginning.
    pub fn start_sweep(&mut self) {
        self.sweeping = Sweep::new().map(|walk| Sweeping { db: 0, walk, due: 0 });
    }

    /// Goes on with the sweep, if it is time.
    pub(super) fn sweep(&mut self, ctx: Ctx<'_>) {
        let Some(mut sweeping) = self.sweeping.take() else {
            return;
        };
        if ctx.now() <= sweeping.due {
            self.sweeping = Some(sweeping);
            return;
        }
        let db = sweeping.db;
        if !ctx.select(db) {
            // There are no more databases.
            return;
        }
        let mut found = Vec::new();
        let mut more = true;
        for _ in 0..STEPS {
            more = sweeping.walk.step(ctx, &mut |key| {
                if self.memory.get(db, key.bytes()).is_none() {
                    found.push(key.bytes().to_vec());
                }
            });
            if !more {
                break;
            }
        }
        for name in found {
            let key = crate::ffi::Text::new(&name);
            let scene = Scene { ctx, db, by_alarm: true };
            let opened = Store::open(ctx, &key, Access::Write);
            if let Ok(mut store) = opened {
                if is_a_lock(&store) {
                    let _ = self.look_over(scene, &mut store);
                }
            }
        }
        sweeping.due = ctx.now() + PAUSE;
        if more {
            self.sweeping = Some(sweeping);
        } else if let Some(walk) = Sweep::new() {
            self.sweeping = Some(Sweeping { db: db + 1, walk, due: sweeping.due });
        }
    }
}

/// Nobody has named this hash in a command, and it may be anything that has a
/// field `mode`. One that somebody holds is a lock; one that nobody holds ends
/// by its own expiry.
fn is_a_lock(store: &Store<'_>) -> bool {
    store.look(&Owner::nobody(), Survey::Presence).is_ok_and(|seen| !seen.lock.is_free())
}
