//! Frees memory that is no longer needed, in steps.

use super::pass::Pass;
use super::Engine;

impl Engine {
    /// Frees memory until all of it is free or the pass is over.
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

    /// Whether there is memory to free.
    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty() || self.memory.is_sparse()
    }
}
