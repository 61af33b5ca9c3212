//! The module's section of INFO.

use super::{api, guard, Ctx};
use redis_module::raw;
use std::ffi::{c_int, CStr};
use std::marker::PhantomData;
use std::ptr::null;

/// The callback that writes the section.
pub trait OnInfo {
    /// Runs for each INFO that includes the section. INFO can run in the middle of the module's own
    /// work, and in the report of a crash, perhaps not on the main thread. So this must neither
    /// wait nor allocate.
    fn on_info(info: &mut Info<'_>);
}

/// The section, while it is written. The server adds the module's name and `_` before the name of
/// each field.
pub struct Info<'a> {
    raw: *mut raw::RedisModuleInfoCtx,
    callback: PhantomData<&'a ()>,
}

impl Info<'_> {
    /// Adds a number.
    pub fn number(&mut self, field: &CStr, value: u64) {
        // SAFETY: the context lives as long as `self`, and the server copies the name.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.raw, field.as_ptr(), value) };
    }

    /// Adds a text, which must not contain `:` or line ends.
    pub fn text(&mut self, field: &CStr, value: &CStr) {
        // SAFETY: the context lives as long as `self`, and the server copies both strings.
        unsafe {
            api!(RedisModule_InfoAddFieldCString)(self.raw, field.as_ptr(), value.as_ptr());
        }
    }
}

impl Ctx<'_> {
    /// Registers `H` to write the module's section of INFO.
    pub fn write_info<H: OnInfo>(self) {
        // SAFETY: the context lives as long as `self`. The server forgets the callback with its
        // module, and so never calls what is gone.
        unsafe { api!(RedisModule_RegisterInfoFunc)(self.raw(), Some(section::<H>)) };
    }
}

unsafe extern "C" fn section<H: OnInfo>(ctx: *mut raw::RedisModuleInfoCtx, _crashed: c_int) {
    let _ = guard::guarded(|| {
        // SAFETY: the server lends the context for this call. Null gives the section the name of
        // the module.
        let status = unsafe { api!(RedisModule_InfoAddSection)(ctx, null()) };
        // The INFO may be for other sections only.
        if status == raw::REDISMODULE_OK as c_int {
            H::on_info(&mut Info { raw: ctx, callback: PhantomData });
        }
    });
}
