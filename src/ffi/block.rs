//! Blocked clients.
//!
//! What the server asks of a module here, and what this file makes sure of: a
//! client that was blocked is unblocked exactly once, whatever became of it,
//! else the module could never be unloaded; and an answer that can no longer be
//! delivered is reported, for it may have been a grant.

use super::{api, guard, Ctx, Reply};
use redis_module::raw;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

/// A client that waits for an answer.
#[derive(Debug)]
pub struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

/// Tells a blocked client from the others, also when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockedId(usize);

/// What can happen to a blocked client.
pub trait OnBlocked {
    /// CLIENT UNBLOCK told it to wait no longer. It gets this reply, and is to
    /// be dismissed.
    fn unblocked(ctx: Ctx<'_>, id: BlockedId) -> Reply;

    /// It disconnected, or the server answered it with an error. It may have
    /// been answered by us before; if not, it is to be dismissed.
    fn left(id: BlockedId);

    /// The answer with this number was, or could not be, delivered. What the
    /// client sent after its request has not been looked at yet.
    fn answered(ctx: Ctx<'_>, number: u64, delivered: bool);
}

struct Answer {
    number: u64,
    reply: Reply,
    delivered: bool,
}

impl Ctx<'_> {
    /// Blocks the client whose command is running, which then gets no other
    /// reply. None where the server does not allow it.
    pub fn block<H: OnBlocked>(self) -> Option<Blocked> {
        // SAFETY: a valid context in a command; callbacks that live as long as
        // the module. A timeout of 0 is none: the module has its own timer.
        unsafe {
            let client = api!(RedisModule_BlockClient)(
                self.raw(),
                Some(deliver),
                Some(unblocked::<H>),
                Some(free::<H>),
                0,
            );
            let client = NonNull::new(client)?;
            api!(RedisModule_SetDisconnectCallback)(client.as_ptr(), Some(left::<H>));
            Some(Blocked(client))
        }
    }
}

impl Blocked {
    /// Which one it is.
    pub fn id(&self) -> BlockedId {
        BlockedId(self.0.as_ptr() as usize)
    }

    /// Answers it. `number` comes back with [`OnBlocked::answered`].
    pub fn answer(self, number: u64, reply: Reply) {
        let answer = Box::new(Answer { number, reply, delivered: false });
        self.unblock(Box::into_raw(answer).cast());
    }

    /// Lets go of one that needs no answer any more.
    pub fn dismiss(self) {
        self.unblock(null_mut());
    }

    fn unblock(self, answer: *mut c_void) {
        // SAFETY: blocked once, and `self` is used up: unblocked once.
        unsafe { api!(RedisModule_UnblockClient)(self.0.as_ptr(), answer) };
    }
}

unsafe extern "C" fn deliver(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server calls us on its main thread with a context, and gives
    // us the answer back that `answer` gave it, or null.
    let _ = guard::guarded(|| unsafe {
        let answer: *mut Answer = api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast();
        if let (Some(ctx), Some(answer)) = (Ctx::new(ctx), answer.as_mut()) {
            ctx.reply(&answer.reply);
            answer.delivered = true;
        }
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn unblocked<H: OnBlocked>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server calls us on its main thread with a context.
    let _ = guard::guarded(|| unsafe {
        let client = api!(RedisModule_GetBlockedClientHandle)(ctx);
        if let Some(ctx) = Ctx::new(ctx) {
            ctx.reply(&H::unblocked(ctx, BlockedId(client as usize)));
        }
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn left<H: OnBlocked>(
    _ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    let _ = guard::guarded(|| H::left(BlockedId(client as usize)));
}

unsafe extern "C" fn free<H: OnBlocked>(ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    // SAFETY: the server hands each answer here once; it came from a box.
    let answer = unsafe { Box::from_raw(answer.cast::<Answer>()) };
    // SAFETY: the server calls us on its main thread with a context.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        let _ = guard::guarded(|| H::answered(ctx, answer.number, answer.delivered));
    }
}
