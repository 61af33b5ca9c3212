//! What the server tells of itself, of the time and of its clients.

use super::strings::Text;
use super::{Ctx, ERR, OK};
use crate::state::STATE;
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void, CStr};

const CTX_MULTI: c_int = 1 << 1;
const CTX_MASTER: c_int = 1 << 2;

pub(super) extern "C" fn get_context_flags(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| CTX_MASTER | if s.may_block { 0 } else { CTX_MULTI })
}

pub(super) extern "C" fn get_selected_db(_: *mut Ctx) -> c_int {
    STATE.with_borrow(|s| s.selected)
}

pub(super) extern "C" fn select_db(_: *mut Ctx, db: c_int) -> c_int {
    if !(0..16).contains(&db) {
        return ERR;
    }
    STATE.with_borrow_mut(|s| s.selected = db);
    OK
}

pub(super) extern "C" fn milliseconds() -> c_longlong {
    STATE.with_borrow(|s| s.now)
}

pub(super) extern "C" fn cached_microseconds() -> c_longlong {
    STATE.with_borrow(|s| s.now.saturating_mul(1000))
}

pub(super) extern "C" fn get_server_version() -> c_int {
    8 << 16
}

pub(super) extern "C" fn avoid_replica_traffic() -> c_int {
    0
}

pub(super) extern "C" fn get_open_key_modes_all() -> c_int {
    c_int::MAX
}

pub(super) extern "C" fn get_notify_keyspace_events() -> c_int {
    STATE.with_borrow(|s| if s.notifies { c_int::MAX } else { 0 })
}

pub(super) extern "C" fn get_client_id(_: *mut Ctx) -> c_ulonglong {
    STATE.with_borrow(|s| s.client)
}

/// What the module reads of a client.
#[repr(C)]
pub struct ClientInfo {
    version: u64,
    flags: u64,
    id: u64,
    addr: [c_char; 46],
    port: u16,
    db: u16,
}

impl ClientInfo {
    pub fn of(id: u64) -> ClientInfo {
        ClientInfo { version: 1, flags: 0, id, addr: [0; 46], port: 1, db: 0 }
    }
}

pub(super) unsafe extern "C" fn get_client_info_by_id(info: *mut ClientInfo, id: u64) -> c_int {
    if !STATE.with_borrow(|s| s.connected.contains(&id)) {
        return ERR;
    }
    if !info.is_null() {
        unsafe { *info = ClientInfo::of(id) };
    }
    OK
}

pub(super) extern "C" fn get_client_name_by_id(_: *mut Ctx, id: u64) -> *mut Text {
    Text::make(id.to_string().as_bytes())
}

pub(super) extern "C" fn server_info(_: *mut Ctx, _: *const c_char) -> *mut c_void {
    std::ptr::without_provenance_mut(16)
}

pub(super) unsafe extern "C" fn server_info_field(
    _: *mut Ctx,
    _: *mut c_void,
    field: *const c_char,
) -> *mut Text {
    Text::make(match unsafe { CStr::from_ptr(field) }.to_bytes() {
        b"connected_slaves" | b"repl_backlog_active" => b"1",
        b"maxmemory_policy" => b"noeviction",
        _ => b"0",
    })
}

pub(super) extern "C" fn current_user_name(_: *mut Ctx) -> *mut Text {
    Text::make(b"default")
}
