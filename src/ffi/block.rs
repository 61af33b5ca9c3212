//! Blocked clients.
//!
//! This file ensures two things. Each blocked client is unblocked exactly once, also if it has
//! disconnected; else the module could never be unloaded. And an answer that could not be delivered
//! is reported, because it may have been a grant.

use super::{api, guard, Ctx, Reply};
use redis_module::raw;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

/// A client that waits for an answer. If it is dropped without an answer, the client is unblocked
/// and gets an error.
pub struct Blocked {
    client: NonNull<raw::RedisModuleBlockedClient>,
    answer: Option<Box<Answer>>,
}

/// Identifies a blocked client, also after it has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockedId(usize);

/// The callbacks for events of a blocked client.
pub trait OnBlocked {
    /// CLIENT UNBLOCK ended the wait. Returns the reply to the client. The callback must dismiss
    /// the [`Blocked`].
    fn unblocked(ctx: Ctx<'_>, id: BlockedId) -> Reply;

    /// The client disconnected, or the server answered it with an error. If the module has not
    /// answered it before, the callback must dismiss the [`Blocked`].
    fn disconnected(ctx: Ctx<'_>, id: BlockedId);

    /// The answer with this number was delivered, or could not be. The server has not yet read what
    /// the client sent after its request.
    fn answered(ctx: Ctx<'_>, number: u64, delivered: bool);
}

struct Answer {
    number: u64,
    reply: Reply,
    delivered: bool,
}

impl Ctx<'_> {
    /// Blocks the client that runs the command. The command must not reply. None: the server does
    /// not allow it.
    pub fn block<H: OnBlocked>(self) -> Option<Blocked> {
        // SAFETY: the context is a command's, for only that has a client to block, and the
        // server unloads no module that has blocked clients: so the callbacks are there as
        // long as the client waits.
        unsafe {
            let block = api!(RedisModule_BlockClient);
            // Read before the client is blocked: a missing function panics, and a blocked client
            // would get no error reply for that.
            let on_disconnect = api!(RedisModule_SetDisconnectCallback);
            // A timeout of 0 means no timeout: the module has a timer of its own.
            let client = block(self.raw(), Some(deliver), Some(unblocked::<H>), Some(free::<H>), 0);
            let client = NonNull::new(client)?;
            on_disconnect(client.as_ptr(), Some(disconnected::<H>));
            Some(Blocked { client, answer: None })
        }
    }
}

impl Blocked {
    /// The id of the blocked client.
    pub fn id(&self) -> BlockedId {
        BlockedId(self.client.as_ptr() as usize)
    }

    /// Answers the client and unblocks it. [`OnBlocked::answered`] gets `number`.
    pub fn answer(mut self, number: u64, reply: Reply) {
        self.answer = Some(Box::new(Answer { number, reply, delivered: false }));
        self.unblock();
        // If `unblock` panics, the drop tries once more.
        std::mem::forget(self);
    }

    /// Releases a client that needs no answer: it has disconnected, or the server answers it.
    pub fn dismiss(mut self) {
        self.unblock();
        std::mem::forget(self);
    }

    /// Unblocks the client. It may panic before the client is unblocked, but not after.
    fn unblock(&mut self) {
        // SAFETY: the handle comes from BlockClient and is used up here, once: no caller
        // uses `self` after this has returned. `free` takes the answer back.
        unsafe {
            let unblock = api!(RedisModule_UnblockClient);
            let answer = self.answer.take().map_or(null_mut(), Box::into_raw);
            unblock(self.client.as_ptr(), answer.cast());
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.unblock();
    }
}

unsafe extern "C" fn deliver(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the context lives for this call. The answer is the one that `unblock` gave to
    // the server, or null; nobody else has it until the server gives it to `free`.
    let answer = guard::callback(|| unsafe {
        api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Answer>().as_mut()
    });
    // SAFETY: as above.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        match answer {
            Ok(Some(answer)) => answer.delivered = ctx.reply_or_error(&answer.reply),
            Ok(None) => _ = ctx.reply_or_error(&Reply::Error("ERR internal error".into())),
            Err(panic) => _ = ctx.reply_or_error(&Reply::internal_error(&panic)),
        }
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn unblocked<H: OnBlocked>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server lends us the context for this call.
    let Some(ctx) = (unsafe { Ctx::new(ctx) }) else {
        return raw::REDISMODULE_ERR as c_int;
    };
    let reply = guard::callback(|| {
        // SAFETY: the context is that of a blocked client, which has a handle.
        let client = unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx.raw()) };
        H::unblocked(ctx, BlockedId(client as usize))
    });
    ctx.reply_or_error(&reply.unwrap_or_else(|panic| Reply::internal_error(&panic)));
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn disconnected<H: OnBlocked>(
    ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the server lends us the context for this call.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        // If this panics, the recovery dismisses the client.
        let _ = guard::callback(|| H::disconnected(ctx, BlockedId(client as usize)));
    }
}

unsafe extern "C" fn free<H: OnBlocked>(ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    if answer.is_null() {
        return;
    }
    // SAFETY: `unblock` made it from a box, and the server gives it here once, at the end.
    let answer = unsafe { Box::from_raw(answer.cast::<Answer>()) };
    // SAFETY: the server lends us the context for this call.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        let _ = guard::callback(|| H::answered(ctx, answer.number, answer.delivered));
    }
}
