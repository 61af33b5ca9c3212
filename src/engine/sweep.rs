//! Finding the locks that nobody has touched since this server became their
//! primary: after a restart or a promotion their leases are to end on time too.

use super::{Engine, Progress, Scene};
use crate::core::Millis;
use crate::ffi::{Access, Ctx, Sweep};
use crate::store::{Owner, Store, Survey};

/// How far the background sweep has come.
pub(super) struct Sweeping {
    db: i32,
    walk: Sweep,
    /// How many keys were met in the databases before.
    met: u64,
    /// How many there were in all when it began, once that is known.
    keys: Option<u64>,
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
        self.swept = false;
        let new = |walk| Sweeping { db: 0, walk, met: 0, keys: None, due: 0 };
        self.sweeping = Sweep::new().map(new);
    }

    /// How far it has come. Keys come and go meanwhile: 100 % is when it says so.
    pub fn progress(&self) -> Progress {
        match &self.sweeping {
            None if self.swept => Progress::Done,
            None => Progress::Idle,
            Some(Sweeping { walk, met, keys, .. }) => {
                let met = met.saturating_add(walk.met()).saturating_mul(100);
                let percent = keys.map_or(0, |keys| met / keys.max(1));
                Progress::Running(percent.min(99))
            }
        }
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
        if sweeping.keys.is_none() {
            sweeping.keys = Some(all_keys(ctx));
        }
        if !ctx.select(db) {
            // There are no more databases.
            self.swept = true;
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
            let met = sweeping.met + sweeping.walk.met();
            self.sweeping = Some(Sweeping { db: db + 1, walk, met, ..sweeping });
        }
    }
}

/// How many keys all databases have.
fn all_keys(ctx: Ctx<'_>) -> u64 {
    let dbs = (0..).take_while(|db| ctx.select(*db));
    dbs.map(|_| ctx.key_count()).fold(0, u64::saturating_add)
}

/// Nobody has named this hash in a command, and it may be anything that has a
/// field `mode`. One that somebody holds is a lock; one that nobody holds ends
/// by its own expiry.
fn is_a_lock(store: &Store<'_>) -> bool {
    store.look(&Owner::nobody(), Survey::Presence).is_ok_and(|seen| !seen.lock.is_free())
}
