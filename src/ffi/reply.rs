//! Replies.

use super::{api, guard, Ctx};
use std::ffi::CString;

/// A reply, as a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// No reply now: the client is blocked and gets its answer later.
    Later,
    /// `+OK`.
    Ok,
    /// A simple string.
    Status(String),
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Null.
    Null,
    /// An array.
    Array(Vec<Reply>),
    /// A map. A client that uses RESP2 gets a flat array.
    Map(Vec<(&'static str, Reply)>),
    /// An error: a code, a space, a text.
    Error(String),
}

impl Reply {
    /// The error of a request that ended in a panic.
    pub(super) fn internal_error(panic: &str) -> Reply {
        Reply::Error(format!("ERR internal error: {panic}"))
    }
}

impl Ctx<'_> {
    /// Sends a reply to the client. On a panic it sends an error; if a part of the reply was sent
    /// already, it closes the connection instead. Returns whether the whole reply was sent.
    pub(super) fn reply_or_error(self, reply: &Reply) -> bool {
        if let Err(panic) = guard::guarded(|| self.begin(reply)) {
            let _ = guard::guarded(|| self.begin(&Reply::internal_error(&panic)));
            return false;
        }
        if !matches!(reply, Reply::Array(_) | Reply::Map(_)) {
            return true;
        }
        let sent = guard::guarded(|| self.go_on(reply)).is_ok();
        if !sent {
            let _ = guard::guarded(|| self.client_id().map(|client| self.close_client(client)));
        }
        sent
    }

    fn reply(self, reply: &Reply) {
        self.begin(reply);
        self.go_on(reply);
    }

    /// Sends a reply by a single call; of a reply with parts only their number.
    fn begin(self, reply: &Reply) {
        let ctx = self.raw();
        // SAFETY: the context lives as long as `self`, and the server copies the bytes.
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
    }

    /// Sends the parts of a reply.
    fn go_on(self, reply: &Reply) {
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
