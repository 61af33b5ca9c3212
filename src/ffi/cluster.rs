//! Information about the cluster.

use super::{api, CallReply, Ctx};
use redis_module::raw;

impl Ctx<'_> {
    /// The reply to CLUSTER SHARDS; None: the server gives none, for example because the command
    /// was renamed.
    pub fn cluster_shards(self) -> Option<CallReply> {
        self.call(c"CLUSTER", c"SHARDS", &[])
    }

    /// Whether the server can move slots atomically (CLUSTER MIGRATESLOTS): Valkey from 9.0 on.
    pub fn moves_slots_atomically(self) -> bool {
        let [version] = self.info_fields(c"server", [c"valkey_version"]);
        let text = version.as_ref().and_then(|version| std::str::from_utf8(version.bytes()).ok());
        let major = text.and_then(|text| text.split('.').next()?.parse().ok());
        major.is_some_and(|major: u32| major >= 9)
    }

    /// The id of this node; None outside of a cluster.
    pub fn node_id(self) -> Option<Vec<u8>> {
        // SAFETY: the server keeps the id, which has this many bytes, as long as it runs.
        unsafe {
            let id = api!(RedisModule_GetMyClusterID)();
            let len = raw::REDISMODULE_NODE_ID_LEN as usize;
            (!id.is_null()).then(|| std::slice::from_raw_parts(id.cast(), len).to_vec())
        }
    }
}
