//! Strings of the server.

use super::Ctx;
use crate::keys::Bytes;
use std::ffi::{c_char, c_longlong};
use std::sync::atomic::{AtomicIsize, Ordering};

/// How many strings there are. None may be left when the module is unloaded, but for those that
/// its statics keep.
pub static STRINGS: AtomicIsize = AtomicIsize::new(0);

/// A string of the server.
pub struct Text {
    references: usize,
    bytes: Bytes,
}

impl Text {
    pub fn make(bytes: &[u8]) -> *mut Text {
        STRINGS.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(Text { references: 1, bytes: bytes.to_vec() }))
    }
}

/// The bytes of a string.
pub(super) unsafe fn bytes<'a>(text: *const Text) -> &'a [u8] {
    unsafe { &(*text).bytes }
}

pub(super) unsafe extern "C" fn create_string(
    _: *mut Ctx,
    start: *const c_char,
    len: usize,
) -> *mut Text {
    Text::make(unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

pub(super) extern "C" fn create_string_from_long_long(
    _: *mut Ctx,
    number: c_longlong,
) -> *mut Text {
    Text::make(number.to_string().as_bytes())
}

pub(super) unsafe extern "C" fn retain_string(_: *mut Ctx, text: *mut Text) {
    unsafe { (*text).references += 1 };
}

pub unsafe extern "C" fn free_string(_: *mut Ctx, text: *mut Text) {
    unsafe {
        (*text).references -= 1;
        if (*text).references == 0 {
            STRINGS.fetch_sub(1, Ordering::Relaxed);
            drop(Box::from_raw(text));
        }
    }
}

pub(super) unsafe extern "C" fn string_ptr_len(
    text: *const Text,
    len: *mut usize,
) -> *const c_char {
    let bytes = unsafe { bytes(text) };
    if !len.is_null() {
        unsafe { *len = bytes.len() };
    }
    bytes.as_ptr().cast()
}
