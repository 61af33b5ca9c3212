//! The sweep: finds the locks that no command has named since this server became their primary. So
//! their leases end on time also after a restart, a promotion or an atomic migration of their slot.

use super::intervals;
use super::pass::Pass;
use super::state::{Moment, Progress, Sweep, Sweeping};
use super::Engine;
use crate::ffi::{self, Ctx, Db, Text};
use crate::store::{self, LockRef};

/// The most steps of the server's scan in one step of the sweep.
const STEPS: usize = 500;

impl Engine {
    /// Starts the sweep from the beginning.
    pub fn start_sweep(&mut self) {
        let new = |walk| Sweeping {
            db: 0,
            walk,
            keys_done: 0,
            total_keys: None,
            found: Vec::new(),
            has_more: true,
            due: Moment::PAST,
        };
        self.sweep = Sweep { running: ffi::Sweep::new().map(new), is_done: false, again: false };
    }

    /// Starts a sweep, after the one that runs. So sweeps come to an end even if keys come all the
    /// time.
    pub(super) fn sweep_again(&mut self) {
        if self.sweep.is_running() {
            self.sweep.again = true;
        } else {
            self.start_sweep();
        }
    }

    /// How far the sweep is. The number of keys may change meanwhile, so it shows at most 99 %
    /// until it is done.
    pub fn progress(&self) -> Progress {
        match &self.sweep.running {
            None if self.sweep.is_done => Progress::Done,
            None => Progress::Idle,
            Some(Sweeping { walk, keys_done, total_keys, .. }) => {
                let keys_met = keys_done.saturating_add(walk.met());
                let percent =
                    total_keys.map_or(0, |total| keys_met.saturating_mul(100) / total.max(1));
                Progress::Running(percent.min(99))
            }
        }
    }

    /// Does the next step of the sweep, if it is due.
    pub(super) fn go_on_with_sweep(&mut self, ctx: Ctx<'_>, pass: &Pass) {
        let Some(mut sweeping) = self.sweep.running.take() else {
            return;
        };
        if pass.now <= sweeping.due {
            self.sweep.running = Some(sweeping);
            return;
        }
        if sweeping.total_keys.is_none() {
            sweeping.total_keys = Some(all_keys(ctx));
        }
        let Some(db) = ctx.find_db(sweeping.db) else {
            self.sweep.is_done = true;
            if self.sweep.again {
                self.start_sweep();
            }
            return;
        };
        if sweeping.found.is_empty() {
            sweeping.has_more = self.walk(db, &mut sweeping, pass);
        }
        while let Some(name) = sweeping.found.pop() {
            let key = Text::new(&name);
            match self.discover(db, &key) {
                Ok(()) => {}
                // A node that has just started serves no slot for a while.
                Err(store::Error::ClusterDown(_)) => {
                    sweeping.found.push(name);
                    sweeping.due = self.within(ctx, intervals::SWEEP_PAUSE_DOWN);
                    self.sweep.running = Some(sweeping);
                    return;
                }
                Err(_) if store::is_here(db, &key) => {
                    self.unserved.add(LockRef { db: db.number(), name: &name }.into());
                }
                Err(_) => {}
            }
            if pass.is_over() && !sweeping.found.is_empty() {
                sweeping.due = self.within(ctx, intervals::SWEEP_PAUSE);
                self.sweep.running = Some(sweeping);
                return;
            }
        }
        sweeping.due = self.within(ctx, intervals::SWEEP_PAUSE);
        if sweeping.has_more {
            self.sweep.running = Some(sweeping);
        } else if let Some(walk) = ffi::Sweep::new() {
            let keys_done = sweeping.keys_done + sweeping.walk.met();
            self.sweep.running =
                Some(Sweeping { db: db.number() + 1, walk, keys_done, ..sweeping });
        }
    }

    /// Walks on, and collects the hashes that are not remembered as locks. False if the walk
    /// through the database is finished.
    fn walk(&self, db: Db<'_>, sweeping: &mut Sweeping, pass: &Pass) -> bool {
        let Sweeping { walk, found, .. } = sweeping;
        let mut step = || {
            walk.step(db, &mut |key| {
                let lock = LockRef { db: db.number(), name: key.bytes() };
                if self.memory.get(lock).is_none() {
                    found.push(key.bytes().to_vec());
                }
            })
        };
        for _ in 0..STEPS {
            if !step() {
                return false;
            }
            if pass.is_over() {
                break;
            }
        }
        true
    }
}

/// The number of keys in all databases.
fn all_keys(ctx: Ctx<'_>) -> u64 {
    let dbs = (0..).map_while(|number| ctx.find_db(number));
    dbs.map(Db::key_count).fold(0, u64::saturating_add)
}
