//! Server events: what happens to the server as a whole.

use super::{api, guard, Ctx, Text};
use redis_module::raw;
use std::ffi::{c_int, c_void, CStr};

/// Something that can happen to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It became a primary or a replica.
    RoleChanged,
    /// A replica of it came online or went away.
    ReplicaChanged,
    /// It forked, to write a file or for a replica's full synchronisation, or
    /// the child ended.
    ForkChild,
}

impl Event {
    fn id(self) -> u64 {
        match self {
            Event::RoleChanged => raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            Event::ReplicaChanged => raw::REDISMODULE_EVENT_REPLICA_CHANGE,
            Event::ForkChild => raw::REDISMODULE_EVENT_FORK_CHILD,
        }
    }
}

/// What to do when it happens.
pub trait OnEvent {
    /// Called right after the event.
    fn on_event(ctx: Ctx<'_>);
}

impl Ctx<'_> {
    /// Has `H` called whenever this happens. False when the server cannot.
    pub fn subscribe<H: OnEvent>(self, event: Event) -> bool {
        let event = raw::RedisModuleEvent { id: event.id(), dataver: 1 };
        // SAFETY: a valid context and a callback that lives as long as the module.
        let status = unsafe {
            api!(RedisModule_SubscribeToServerEvent)(self.raw(), event, Some(happened::<H>))
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// A number from a section of INFO; None when it is not there.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        // SAFETY: a valid context; the data is freed, and the field's value,
        // of which we get a reference, outlives it.
        let value = unsafe {
            let info = api!(RedisModule_GetServerInfo)(self.raw(), section.as_ptr());
            let value =
                Text::adopt(api!(RedisModule_ServerInfoGetField)(self.raw(), info, field.as_ptr()));
            api!(RedisModule_FreeServerInfo)(self.raw(), info);
            value
        }?;
        std::str::from_utf8(value.bytes()).ok()?.parse().ok()
    }
}

unsafe extern "C" fn happened<H: OnEvent>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server calls us on its main thread with a context.
    if let Some(ctx) = unsafe { Ctx::new(ctx) } {
        // A panic is in the log already.
        let _ = guard::guarded(|| H::on_event(ctx));
    }
}
