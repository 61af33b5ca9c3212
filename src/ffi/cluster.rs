//! Information about the cluster, and about the connection of a client.

use super::{api, Ctx};
use redis_module::raw;
use std::ffi::c_int;

/// A copy of the reply to a command that the module called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallReply {
    /// A reply of any other type.
    Nothing,
    /// A number.
    Integer(i64),
    /// A text.
    Text(Vec<u8>),
    /// A list. A map is a list of names and values in turn.
    List(Vec<CallReply>),
}

impl Ctx<'_> {
    /// The reply to CLUSTER SHARDS; None: the server gives none, for example because the command
    /// was renamed.
    pub fn cluster_shards(self) -> Option<CallReply> {
        // SAFETY: the context lives as long as `self`. `c` stands for one C string. The reply
        // is copied before it is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                c"CLUSTER".as_ptr(),
                c"c".as_ptr(),
                c"SHARDS".as_ptr(),
            );
            if reply.is_null() {
                return None;
            }
            let shards = tree(reply);
            api!(RedisModule_FreeCallReply)(reply);
            Some(shards)
        }
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

    /// Whether a client is connected by TLS.
    pub fn is_tls(self, client: u64) -> bool {
        let mut info = raw::RedisModuleClientInfo {
            version: u64::from(raw::REDISMODULE_CLIENTINFO_VERSION),
            flags: 0,
            id: 0,
            addr: [0; 46],
            port: 0,
            db: 0,
        };
        let into = std::ptr::from_mut(&mut info).cast();
        // SAFETY: `info` says its version, so the server writes no more than it has room for.
        let status = unsafe { api!(RedisModule_GetClientInfoById)(into, client) };
        let tls = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_SSL);
        status == raw::REDISMODULE_OK as c_int && info.flags & tls != 0
    }
}

/// # Safety
/// `reply` is null or a reply that is not freed while this runs.
unsafe fn tree(reply: *mut raw::RedisModuleCallReply) -> CallReply {
    if reply.is_null() {
        return CallReply::Nothing;
    }
    // SAFETY: the caller keeps the reply, which owns its elements and texts.
    unsafe {
        match api!(RedisModule_CallReplyType)(reply) as isize {
            raw::REDISMODULE_REPLY_INTEGER => {
                CallReply::Integer(api!(RedisModule_CallReplyInteger)(reply))
            }
            raw::REDISMODULE_REPLY_STRING => {
                let mut len = 0;
                let text = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
                CallReply::Text(std::slice::from_raw_parts(text.cast(), len).to_vec())
            }
            raw::REDISMODULE_REPLY_ARRAY => {
                let len = api!(RedisModule_CallReplyLength)(reply);
                let element = |at| tree(api!(RedisModule_CallReplyArrayElement)(reply, at));
                CallReply::List((0..len).map(element).collect())
            }
            _ => CallReply::Nothing,
        }
    }
}
