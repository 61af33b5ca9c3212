//! What an operator can set.

use crate::core::{Millis, Policy};
use crate::store::{Channels, ClusterPublish};

/// What an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who goes first.
    pub policy: Policy,
    /// Whether circles of waiters are looked for.
    pub deadlock_detection: bool,
    /// How many may wait, over the whole server; 0: any number.
    pub max_waiters: usize,
    /// How long a fence key outlives its last token, in ms; 0: for ever.
    pub fence_ttl: Millis,
    /// Where ends are announced.
    pub events: Channels,
    /// How a cluster publishes.
    pub cluster_publish: ClusterPublish,
}

impl Settings {
    /// What they are when nobody has set them.
    pub const DEFAULT: Settings = Settings {
        policy: Policy::Fifo,
        deadlock_detection: true,
        max_waiters: 100_000,
        fence_ttl: 7 * 24 * 3_600_000,
        events: Channels::Redisson,
        cluster_publish: ClusterPublish::Sharded,
    };
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}
