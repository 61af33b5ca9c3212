//! Calls of the server's own commands.

use super::{api, Ctx, Str, Text};
use redis_module::raw;
use std::ffi::CStr;

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
    /// Calls a command of the server, for example CLIENT LIST, with these words behind it. None:
    /// the server does not have it, for example because it was renamed. An error is
    /// [`CallReply::Nothing`].
    pub(super) fn call(self, command: &CStr, word: &CStr, words: &[&[u8]]) -> Option<CallReply> {
        let words: Vec<Text> = words.iter().map(|word| Text::new(word)).collect();
        let words: Vec<&Str> = words.iter().map(|word| &**word).collect();
        // SAFETY: the context lives as long as `self`. `c` stands for a C string, `v` for an array
        // of strings, which `&Str` is laid out as, and its length. The reply is copied before it
        // is freed.
        unsafe {
            let reply = api!(RedisModule_Call)(
                self.raw(),
                command.as_ptr(),
                c"cv".as_ptr(),
                word.as_ptr(),
                words.as_ptr(),
                words.len(),
            );
            if reply.is_null() {
                return None;
            }
            let copy = tree(reply);
            api!(RedisModule_FreeCallReply)(reply);
            Some(copy)
        }
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
