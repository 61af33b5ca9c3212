//! Open keys: their values, expiry and fields, and the walk over all keys.

use super::strings::{bytes, free_string, Text};
use super::{context, Ctx, ERR, OK};
use crate::keys::{Bytes, Key, Value};
use crate::state::STATE;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void, CStr};
use std::ptr::null_mut;

const NO_EXPIRE: i64 = -1;
const WRITE: c_int = 1 << 1;
/// The value by which HashSet deletes a field.
const DELETION: *mut Text = std::ptr::without_provenance_mut(1);

/// A key that the module has open.
pub struct Handle {
    db: i32,
    name: Bytes,
    may_write: bool,
}

pub(super) unsafe extern "C" fn open_key(
    _: *mut Ctx,
    name: *const Text,
    mode: c_int,
) -> *mut Handle {
    let name = unsafe { bytes(name) }.to_vec();
    let (db, now) = STATE.with_borrow(|s| (s.selected, s.now));
    let has_lapsed = |key: &Key| key.expiry.is_some_and(|at| now > at);
    let found = STATE.with_borrow(|s| s.primary.get(db, &name).map(has_lapsed));
    let may_write = mode & WRITE != 0;
    if found == Some(true) && may_write {
        expire(db, &name);
    }
    if found != Some(false) && !may_write {
        return null_mut();
    }
    STATE.with_borrow_mut(|s| s.handles += 1);
    Box::into_raw(Box::new(Handle { db, name, may_write }))
}

/// Removes a lapsed key, as the server does when it meets one.
pub(super) fn expire(db: i32, name: &[u8]) {
    STATE.with_borrow_mut(|s| {
        s.primary.remove(db, name);
        s.replica.remove(db, name);
    });
    raise(db, c"expired", name);
}

/// Tells the module of a change of a key.
pub fn raise(db: i32, event: &CStr, name: &[u8]) {
    let Some(callback) = STATE.with_borrow(|s| s.key_events) else {
        return;
    };
    let selected = STATE.with_borrow_mut(|s| std::mem::replace(&mut s.selected, db));
    let text = Text::make(name);
    unsafe {
        callback(context(), 0, event.as_ptr(), text.cast());
        free_string(null_mut(), text);
    }
    STATE.with_borrow_mut(|s| s.selected = selected);
}

pub(super) unsafe extern "C" fn close_key(key: *mut Handle) {
    if !key.is_null() {
        STATE.with_borrow_mut(|s| s.handles -= 1);
        drop(unsafe { Box::from_raw(key) });
    }
}

/// Reads an open key.
pub(super) unsafe fn read<T>(key: *mut Handle, of: impl FnOnce(Option<&Key>) -> T) -> T {
    let key = unsafe { &*key };
    STATE.with_borrow(|s| of(s.primary.get(key.db, &key.name)))
}

pub(super) unsafe extern "C" fn key_type(key: *mut Handle) -> c_int {
    if key.is_null() {
        return 0;
    }
    unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            None => 0,
            Some(Value::String(_)) => 1,
            Some(Value::Hash(_)) => 3,
            Some(Value::Other) => 2,
        })
    }
}

pub(super) unsafe extern "C" fn value_length(key: *mut Handle) -> usize {
    unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.len(),
            Some(Value::String(text)) => text.len(),
            Some(Value::Other) => 1,
            None => 0,
        })
    }
}

pub(super) unsafe extern "C" fn get_abs_expire(key: *mut Handle) -> c_longlong {
    unsafe { read(key, |key| key.and_then(|key| key.expiry).unwrap_or(NO_EXPIRE)) }
}

pub(super) unsafe extern "C" fn set_abs_expire(key: *mut Handle, at: c_longlong) -> c_int {
    let handle = unsafe { &*key };
    if !handle.may_write {
        return ERR;
    }
    STATE.with_borrow_mut(|s| match s.primary.get_mut(handle.db, &handle.name) {
        Some(key) => {
            key.expiry = (at != NO_EXPIRE).then_some(at);
            OK
        }
        None => ERR,
    })
}

#[no_mangle]
pub(super) unsafe extern "C" fn fuzz_hash_get(
    key: *mut Handle,
    field: *const Text,
    value: *mut *mut Text,
) -> c_int {
    unsafe {
        let found = read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.get(bytes(field)).cloned(),
            _ => None,
        });
        *value = found.map_or(null_mut(), |found| Text::make(&found));
    }
    OK
}

#[no_mangle]
pub(super) unsafe extern "C" fn fuzz_hash_set(
    key: *mut Handle,
    field: *const Text,
    value: *mut Text,
) -> c_int {
    let handle = unsafe { &*key };
    let is_hash = unsafe { read(key, |key| key.is_none_or(|k| matches!(k.value, Value::Hash(_)))) };
    if !handle.may_write || !is_hash {
        return 0;
    }
    let value = (value != DELETION).then(|| unsafe { bytes(value) });
    STATE.with_borrow_mut(|s| {
        s.primary.set_field(handle.db, &handle.name, unsafe { bytes(field) }, value)
    });
    1
}

pub(super) unsafe extern "C" fn string_set(key: *mut Handle, text: *const Text) -> c_int {
    let handle = unsafe { &*key };
    let value = Key::string(unsafe { bytes(text) });
    STATE.with_borrow_mut(|s| s.primary.put(handle.db, &handle.name, value));
    OK
}

pub(super) unsafe extern "C" fn string_truncate(key: *mut Handle, len: usize) -> c_int {
    let handle = unsafe { &*key };
    STATE.with_borrow_mut(|s| {
        let name = (handle.db, handle.name.clone());
        match &mut s.primary.0.entry(name).or_insert_with(|| Key::string(b"")).value {
            Value::String(text) => {
                text.resize(len, 0);
                OK
            }
            _ => ERR,
        }
    })
}

pub(super) unsafe extern "C" fn string_dma(
    key: *mut Handle,
    len: *mut usize,
    _: c_int,
) -> *mut c_char {
    let handle = unsafe { &*key };
    STATE.with_borrow_mut(|s| match s.primary.get_mut(handle.db, &handle.name) {
        Some(Key { value: Value::String(text), .. }) => {
            unsafe { *len = text.len() };
            text.as_mut_ptr().cast()
        }
        Some(_) => null_mut(),
        None => {
            unsafe { *len = 0 };
            c"".as_ptr().cast_mut()
        }
    })
}

pub(super) unsafe extern "C" fn delete_key(key: *mut Handle) -> c_int {
    let handle = unsafe { &*key };
    if !handle.may_write {
        return ERR;
    }
    STATE.with_borrow_mut(|s| s.primary.remove(handle.db, &handle.name));
    OK
}

pub(super) extern "C" fn scan_cursor_create() -> *mut c_void {
    Box::into_raw(Box::new(0_u8)).cast()
}

pub(super) unsafe extern "C" fn scan_cursor_destroy(cursor: *mut c_void) {
    drop(unsafe { Box::from_raw(cursor.cast::<u8>()) });
}

pub(super) type ScanKeyCallback =
    unsafe extern "C" fn(*mut Handle, *mut Text, *mut Text, *mut c_void);

pub(super) unsafe extern "C" fn scan_key(
    key: *mut Handle,
    _: *mut c_void,
    callback: ScanKeyCallback,
    data: *mut c_void,
) -> c_int {
    let fields = unsafe {
        read(key, |key| match key.map(|key| &key.value) {
            Some(Value::Hash(fields)) => fields.clone(),
            _ => BTreeMap::new(),
        })
    };
    for (field, value) in fields {
        let (field, value) = (Text::make(&field), Text::make(&value));
        unsafe {
            callback(key, field, value, data);
            free_string(null_mut(), field);
            free_string(null_mut(), value);
        }
    }
    0
}

pub(super) type ScanCallback = unsafe extern "C" fn(*mut Ctx, *mut Text, *mut Handle, *mut c_void);

pub(super) unsafe extern "C" fn scan(
    ctx: *mut Ctx,
    _: *mut c_void,
    callback: ScanCallback,
    data: *mut c_void,
) -> c_int {
    let (db, names) = STATE.with_borrow(|s| {
        let here = s.primary.0.keys().filter(|(db, _)| *db == s.selected);
        (s.selected, here.map(|(_, name)| name.clone()).collect::<Vec<_>>())
    });
    for name in names {
        let text = Text::make(&name);
        let mut handle = Handle { db, name, may_write: false };
        unsafe {
            callback(ctx, text, &mut handle, data);
            free_string(null_mut(), text);
        }
    }
    0
}

pub(super) extern "C" fn db_size(_: *mut Ctx) -> c_ulonglong {
    STATE.with_borrow(|s| s.primary.0.keys().filter(|(db, _)| *db == s.selected).count() as u64)
}
