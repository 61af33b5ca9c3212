//! Replies.

use super::{api, Ctx};
use std::ffi::CString;

/// A reply, as a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// None now: the client is blocked and will be answered.
    Later,
    /// `+OK`.
    Ok,
    /// A simple string.
    Status(String),
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// An array.
    Array(Vec<Reply>),
    /// A map; a flat array to a client that speaks RESP2.
    Map(Vec<(&'static str, Reply)>),
    /// An error: a code, a space, the text.
    Error(String),
}

impl Ctx<'_> {
    /// Sends a reply to the client.
    pub fn reply(self, reply: &Reply) {
        if *reply == Reply::Later {
            return;
        }
        let ctx = self.raw();
        // SAFETY: in this block and below: a valid context, and bytes that the
        // server copies.
        unsafe {
            match reply {
                Reply::Integer(number) => api!(RedisModule_ReplyWithLongLong)(ctx, *number),
                Reply::Null => api!(RedisModule_ReplyWithNull)(ctx),
                Reply::Bulk(bytes) => {
                    api!(RedisModule_ReplyWithStringBuffer)(ctx, bytes.as_ptr().cast(), bytes.len())
                }
                Reply::Later => 0,
                Reply::Ok => api!(RedisModule_ReplyWithSimpleString)(ctx, c"OK".as_ptr()),
                Reply::Status(text) => {
                    api!(RedisModule_ReplyWithSimpleString)(ctx, line(text).as_ptr())
                }
                Reply::Error(text) => api!(RedisModule_ReplyWithError)(ctx, line(text).as_ptr()),
                Reply::Array(items) => api!(RedisModule_ReplyWithArray)(ctx, items.len() as _),
                Reply::Map(pairs) => api!(RedisModule_ReplyWithMap)(ctx, pairs.len() as _),
            }
        };
        match reply {
            Reply::Array(items) => items.iter().for_each(|item| self.reply(item)),
            Reply::Map(pairs) => pairs.iter().for_each(|(name, value)| {
                self.reply(&Reply::Bulk(name.as_bytes().to_vec()));
                self.reply(value);
            }),
            _ => {}
        }
    }
}

/// Text that fits one line of the protocol.
fn line(text: &str) -> CString {
    let clean: Vec<u8> = text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
    // No byte is 0, so this never falls back to the empty line.
    CString::new(clean).unwrap_or_default()
}
