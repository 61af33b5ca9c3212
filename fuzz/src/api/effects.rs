//! What the module has the server do beside changing keys: propagate, log, publish, ask.

use super::strings::{bytes, Text};
use super::{Ctx, OK};
use crate::keys::Bytes;
use crate::state::STATE;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;

/// A call of a command of the server. The module makes such calls only to ask something. ACL says
/// `OK`; elsewhere a null reply means yes, or that there is nothing to tell.
#[no_mangle]
unsafe extern "C" fn fuzz_call(command: *const c_char) -> *mut c_void {
    if unsafe { CStr::from_ptr(command) } == c"ACL" {
        return std::ptr::without_provenance_mut(16);
    }
    unsafe { *libc_errno() = 22 };
    null_mut()
}

pub(super) extern "C" fn call_reply_type(_: *mut c_void) -> c_int {
    const STRING: c_int = 0;
    STRING
}

pub(super) unsafe extern "C" fn call_reply_string(
    _: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    unsafe { *len = 2 };
    c"OK".as_ptr()
}

unsafe extern "C" {
    #[cfg_attr(target_os = "linux", link_name = "__errno_location")]
    #[cfg_attr(not(target_os = "linux"), link_name = "__error")]
    fn libc_errno() -> *mut c_int;
}

#[no_mangle]
pub(super) unsafe extern "C" fn fuzz_replicate(
    command: *const c_char,
    argv: *const *const Text,
    argc: usize,
) -> c_int {
    let command = unsafe { CStr::from_ptr(command) }.to_str().expect("a plain name");
    let args = unsafe { std::slice::from_raw_parts(argv, argc) };
    let args: Vec<Bytes> = args.iter().map(|arg| unsafe { bytes(*arg) }.to_vec()).collect();
    STATE.with_borrow_mut(|s| s.replica.apply(s.selected, command, &args));
    OK
}

/// The module logs each of its faults with this word. Its hook also logs each panic, so this ends
/// the process for a panic in a fuzz target as well.
#[no_mangle]
pub(super) unsafe extern "C" fn fuzz_log(_: *const c_char, line: *const c_char) {
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    if line.contains("bug") || line.contains("not loaded") || line.contains("not unloaded") {
        eprintln!("{line}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

pub(super) extern "C" fn notify_keyspace_event(
    _: *mut Ctx,
    _: c_int,
    _: *const c_char,
    _: *mut Text,
) -> c_int {
    OK
}

pub(super) extern "C" fn close_client(_: *mut Ctx, _: u64) -> c_int {
    eprintln!("the module closes a connection");
    std::process::abort();
}

pub(super) extern "C" fn replicate_verbatim(_: *mut Ctx) -> c_int {
    eprintln!("the module propagates a command of its own");
    std::process::abort();
}

pub(super) extern "C" fn publish(_: *mut Ctx, _: *mut Text, _: *mut Text) -> c_int {
    OK
}

pub(super) extern "C" fn signal_modified_key(_: *mut Ctx, _: *mut Text) -> c_int {
    OK
}
