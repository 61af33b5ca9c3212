//! Blocked clients.

use super::{Ctx, OK};
use crate::state::{Blocked, DisconnectCallback, FreeCallback, Run, STATE};
use std::ffi::{c_int, c_longlong, c_void};
use std::ptr::null_mut;

pub(super) extern "C" fn block_client(
    _: *mut Ctx,
    reply: Run,
    timeout: Run,
    free: FreeCallback,
    _: c_longlong,
) -> *mut Blocked {
    STATE.with_borrow_mut(|s| {
        let client = s.client;
        let blocked = Blocked { client, reply, timeout, free, disconnect: None };
        s.blocked.push(Box::new(blocked));
        s.blocked.last_mut().map_or(null_mut(), |blocked| std::ptr::from_mut(&mut **blocked))
    })
}

pub(super) unsafe extern "C" fn set_disconnect_callback(
    blocked: *mut Blocked,
    callback: DisconnectCallback,
) {
    unsafe { (*blocked).disconnect = Some(callback) };
}

pub(super) extern "C" fn unblock_client(blocked: *mut Blocked, data: *mut c_void) -> c_int {
    STATE.with_borrow_mut(|s| {
        let at = s.blocked.iter().position(|other| std::ptr::eq(&**other, blocked));
        let at = at.expect("a blocked client that is not unblocked yet");
        let blocked = s.blocked.remove(at);
        s.unblocked.push((blocked, data));
    });
    OK
}

pub(super) extern "C" fn blocked_client_handle(_: *mut Ctx) -> *mut Blocked {
    STATE.with_borrow(|s| s.handle)
}

pub(super) extern "C" fn blocked_client_private_data(_: *mut Ctx) -> *mut c_void {
    STATE.with_borrow(|s| s.private)
}
