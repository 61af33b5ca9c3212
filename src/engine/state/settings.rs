//! The settings.

use crate::core::{Millis, Policy};
use crate::store::{Channels, ClusterPublish};

/// What an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which waiters are served first.
    pub policy: Policy,
    /// Whether the module searches for circles of waiters.
    pub deadlock_detection: bool,
    /// The largest number of waiters of the whole server. 0: no limit.
    pub max_waiters: usize,
    /// The expiry of a fence key in ms, from its last token on. 0: it never expires.
    pub fence_ttl: Millis,
    /// Which channels announce the end of holds, and whether messages name owners.
    pub events: Channels,
    /// How announcements are published in a cluster.
    pub cluster_publish: ClusterPublish,
    /// The log gets waits of so many ms and longer; -1: nothing at all.
    pub log_slower_than: Millis,
    /// The log gets locks that were held for so many ms or longer; -1: none.
    pub log_holds_over: Millis,
    /// How many entries the log keeps.
    pub log_max_len: usize,
}

impl Settings {
    /// The values that are valid until an operator sets others.
    pub const DEFAULT: Settings = Settings {
        policy: Policy::Fifo,
        deadlock_detection: true,
        max_waiters: 100_000,
        fence_ttl: 7 * 24 * 3_600_000,
        events: Channels::Redisson,
        cluster_publish: ClusterPublish::Sharded,
        log_slower_than: 1_000,
        log_holds_over: 60_000,
        log_max_len: 128,
    };
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}
