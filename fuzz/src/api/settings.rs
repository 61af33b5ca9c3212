//! The settings of the module.

use super::strings::Text;
use super::{context, Ctx, OK};
use crate::keys::Bytes;
use crate::state::STATE;
use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr::{null, null_mut};

pub(super) type SetInt =
    unsafe extern "C" fn(*const c_char, c_int, *mut c_void, *mut *mut Text) -> c_int;
pub(super) type SetLong =
    unsafe extern "C" fn(*const c_char, c_longlong, *mut c_void, *mut *mut Text) -> c_int;
pub(super) type Apply = unsafe extern "C" fn(*mut Ctx, *mut c_void, *mut *mut Text) -> c_int;

/// How to set a setting.
#[derive(Clone, Copy)]
pub enum SetConfig {
    Int(SetInt),
    Long(SetLong),
}

/// A setting of the module.
pub struct Config {
    pub name: Bytes,
    set: SetConfig,
    apply: Apply,
    data: *mut c_void,
}

impl Config {
    /// CONFIG SET. The value is the number of a word.
    pub fn set(&self, value: i64) {
        let mut error = null_mut();
        unsafe {
            match self.set {
                SetConfig::Int(set) => set(null(), value as c_int, self.data, &mut error),
                SetConfig::Long(set) => set(null(), value, self.data, &mut error),
            };
            (self.apply)(context(), self.data, &mut error);
        }
    }
}

pub(super) unsafe fn register(
    name: *const c_char,
    set: SetConfig,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
    STATE.with_borrow_mut(|s| s.configs.push(Config { name, set, apply, data }));
    OK
}

pub(super) unsafe extern "C" fn register_enum_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_int,
    _: c_int,
    _: *const c_void,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
    set: SetInt,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Int(set), apply, data) }
}

pub(super) unsafe extern "C" fn register_numeric_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_longlong,
    _: c_int,
    _: c_longlong,
    _: c_longlong,
    _: *const c_void,
    set: SetLong,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Long(set), apply, data) }
}

pub(super) unsafe extern "C" fn register_bool_config(
    _: *mut Ctx,
    name: *const c_char,
    _: c_int,
    _: c_int,
    _: *const c_void,
    set: SetInt,
    apply: Apply,
    data: *mut c_void,
) -> c_int {
    unsafe { register(name, SetConfig::Int(set), apply, data) }
}
