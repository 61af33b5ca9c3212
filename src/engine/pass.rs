//! A pass: what the engine does outside of commands in one turn of the server's
//! event loop. Clients wait meanwhile, so it ends after a millisecond, and the
//! rest goes on in the next turn.

use super::clock::Moment;
use super::memory::Locks;
use super::wheel::Wheel;
use super::Engine;
use std::time::{Duration, Instant};

/// When a pass is over. The step that is under way then is done to its end.
const LONG_ENOUGH: Duration = Duration::from_millis(1);

/// A pass that has begun.
pub(super) struct Pass {
    began: Instant,
    /// When it began by the clock of alarms. For all of the pass it is this time.
    pub now: Moment,
}

impl Pass {
    pub fn begin(now: Moment) -> Pass {
        Pass { began: Instant::now(), now }
    }

    /// Whether the rest is for the next one.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() >= LONG_ENOUGH
    }

    /// How long it took, in µs.
    pub fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// What was remembered of a database that is forgotten as a whole: to drop a
/// million locks at once would take long.
#[derive(Default)]
pub(super) struct Garbage {
    locks: Vec<Box<Locks>>,
    wheels: Vec<Wheel>,
}

impl Garbage {
    pub fn add(&mut self, locks: Option<Box<Locks>>, wheel: Option<Box<Wheel>>) {
        self.locks.extend(locks);
        self.wheels.extend(wheel.map(|wheel| *wheel));
    }

    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.wheels.is_empty()
    }

    fn drop_some(&mut self) {
        if let Some(locks) = self.locks.last_mut() {
            if !locks.drop_some() {
                self.locks.pop();
            }
        } else if let Some(wheel) = self.wheels.last_mut() {
            if !wheel.drop_some() {
                self.wheels.pop();
            }
        }
    }
}

impl Engine {
    /// Gives memory back that is needed no more.
    pub(super) fn collect_garbage(&mut self, pass: &Pass) {
        while !self.garbage.is_empty() && !pass.is_over() {
            self.garbage.drop_some();
        }
        while self.memory.is_sparse() && !pass.is_over() {
            let Some(db) = self.memory.find_sparse() else {
                break;
            };
            let (moved, places) = self.memory.pack(db);
            self.timers.pack(db, moved, places);
        }
    }

    /// Whether there is memory to be given back.
    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty() || self.memory.is_sparse()
    }
}
