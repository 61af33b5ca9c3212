//! Announcing what ended (SPEC section 5).

use super::{audience, is_cluster, Audience, Store, NAMES, WORDS};
use crate::core::Announcement;
use crate::ffi::{Propagate, Str};
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
        let channel = NAMES.text(&self.name.channel());
        if is_cluster() {
            self.ctx.publish_to_shard(&channel, message);
        } else {
            self.ctx.publish(&channel, message);
            if audience() == Audience::Replicas {
                self.ctx.replicate(c"PUBLISH", Propagate::ReplicasOnly, &[&channel, message]);
            }
        }
    }
}
