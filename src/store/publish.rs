//! Announcing what ended (SPEC section 5).

use super::{is_cluster, Store};
use crate::core::Announcement;
use crate::ffi::{Propagate, Text};

impl Store<'_> {
    /// Publishes on the lock's channel, as Redisson's scripts do: by sharded
    /// publish in a cluster; outside one also to the subscribers on replicas,
    /// which the module API alone would not reach.
    pub(super) fn announce(&self, announcement: Option<Announcement>) {
        let payload = match announcement {
            Some(Announcement::ReadFreed) => b"0",
            Some(Announcement::WriteEnded) => b"1",
            None => return,
        };
        let (channel, message) = (Text::new(&self.name.channel()), Text::new(payload));
        if is_cluster() {
            self.ctx.publish_to_shard(&channel, &message);
        } else {
            self.ctx.publish(&channel, &message);
            self.ctx.replicate(c"PUBLISH", Propagate::ReplicasOnly, &[&channel, &message]);
        }
    }
}
