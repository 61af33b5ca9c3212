//! Applies a change of the settings while locks are held and waited for.

use super::state::{LockId, Settings};
use super::Engine;
use crate::core::wait::Rules;
use crate::store;

impl Engine {
    /// Applies new settings. After a change of policy all queues are served again. After a change
    /// of policy, or when the detection is switched on, a search for circles is requested.
    pub(super) fn set(&mut self, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        self.waits.rules = Rules {
            policy: settings.policy,
            deadlock_detection: settings.deadlock_detection,
            max_waiters: settings.max_waiters,
        };
        self.log.shorten(settings.log_max_len);
        store::announce_by(settings.events, settings.cluster_publish);
        if settings.events.names_owners() && !before.events.names_owners() {
            self.memory.forget_last_owners();
        }
        let policy_changed = settings.policy != before.policy;
        if policy_changed {
            let waited_for: Vec<LockId> = self.waits.locks().cloned().collect();
            for lock in waited_for {
                self.schedule_now(lock.get());
            }
        }
        let detection_begins = settings.deadlock_detection && !before.deadlock_detection;
        self.waits.needs_search |= (policy_changed || detection_begins) && !self.waits.is_empty();
    }
}
