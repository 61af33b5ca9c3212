//! The events that the module subscribes to, and its timer.

use super::{context, Ctx, OK};
use crate::state::{Event, EventCallback, KeyEventCallback, TimerCallback, STATE};
use std::ffi::{c_int, c_void};

pub(super) extern "C" fn subscribe_to_server_event(
    _: *mut Ctx,
    event: Event,
    callback: Option<EventCallback>,
) -> c_int {
    STATE.with_borrow_mut(|s| match callback {
        Some(callback) => drop(s.events.insert(event.id, callback)),
        None => drop(s.events.remove(&event.id)),
    });
    OK
}

pub(super) extern "C" fn subscribe_to_keyspace_events(
    _: *mut Ctx,
    _: c_int,
    callback: KeyEventCallback,
) -> c_int {
    STATE.with_borrow_mut(|s| s.key_events = Some(callback));
    OK
}

pub(super) extern "C" fn event_loop_add(
    fd: c_int,
    _: c_int,
    callback: TimerCallback,
    data: *mut c_void,
) -> c_int {
    STATE.with_borrow_mut(|s| s.timer = Some((fd, callback, data)));
    OK
}

pub(super) extern "C" fn event_loop_del(_: c_int, _: c_int) -> c_int {
    STATE.with_borrow_mut(|s| s.timer = None);
    OK
}

pub(super) extern "C" fn detached_context(_: *mut Ctx) -> *mut Ctx {
    context()
}
