//! The module's section of INFO.

use super::{api, guard, Ctx};
use redis_module::raw;
use std::ffi::{c_int, CStr};
use std::marker::PhantomData;
use std::ptr::null;

/// What to tell in it.
pub trait OnInfo {
    /// Called for each INFO that asks for it, in the middle of anything: also of
    /// the module's own work, and when the server has crashed. It must neither
    /// wait nor allocate.
    fn on_info(info: &mut Info<'_>);
}

/// The section, while it is written. The server puts the module's name and `_`
/// before every field's.
pub struct Info<'a> {
    raw: *mut raw::RedisModuleInfoCtx,
    callback: PhantomData<&'a ()>,
}

impl Info<'_> {
    /// Adds a number.
    pub fn number(&mut self, field: &CStr, value: u64) {
        // SAFETY: a valid context; the server copies the name.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.raw, field.as_ptr(), value) };
    }

    /// Adds a text. It has neither `:` nor line ends.
    pub fn text(&mut self, field: &CStr, value: &CStr) {
        // SAFETY: a valid context; the server copies both.
        unsafe {
            api!(RedisModule_InfoAddFieldCString)(self.raw, field.as_ptr(), value.as_ptr());
        }
    }
}

impl Ctx<'_> {
    /// Has `H` write the module's section of INFO.
    pub fn write_info<H: OnInfo>(self) {
        // SAFETY: a valid context and a callback that lives as long as the
        // module. It cannot fail.
        unsafe { api!(RedisModule_RegisterInfoFunc)(self.raw(), Some(section::<H>)) };
    }
}

unsafe extern "C" fn section<H: OnInfo>(ctx: *mut raw::RedisModuleInfoCtx, _crashed: c_int) {
    let _ = guard::guarded(|| {
        // SAFETY: the server calls us with its context; no name: the section is
        // called as the module is.
        let status = unsafe { api!(RedisModule_InfoAddSection)(ctx, null()) };
        // Another section may have been asked for.
        if status == raw::REDISMODULE_OK as c_int {
            H::on_info(&mut Info { raw: ctx, callback: PhantomData });
        }
    });
}
