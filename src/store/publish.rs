//! Announcing what ended (SPEC section 5).

use super::{is_cluster, Store, WORDS};
use crate::core::Announcement;
use crate::ffi::{Propagate, Str, Text};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there may be replicas.
static REPLICAS: AtomicBool = AtomicBool::new(true);

/// Says whether announcements are handed on to replicas.
pub fn announce_to_replicas(there_are: bool) {
    REPLICAS.store(there_are, Ordering::Relaxed);
}

impl Store<'_> {
    /// Publishes on the lock's channel, as Redisson's scripts do: by sharded
    /// publish in a cluster; outside one also to the subscribers on replicas,
    /// which the module API alone would not reach.
    pub fn announce(&self, announcement: Option<Announcement>) {
        let message: &Str = match announcement {
            Some(Announcement::ReadFreed) => &WORDS.zero,
            Some(Announcement::WriteEnded) => &WORDS.one,
            None => return,
        };
        let channel = Text::new(&self.name.channel());
        if is_cluster() {
            self.ctx.publish_to_shard(&channel, message);
        } else {
            self.ctx.publish(&channel, message);
            if REPLICAS.load(Ordering::Relaxed) {
                self.ctx.replicate(c"PUBLISH", Propagate::ReplicasOnly, &[&channel, message]);
            }
        }
    }
}
