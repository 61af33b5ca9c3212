//! Walking over all keys of a database, a few at a time.

use super::{api, guard, Ctx, Str};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A walk over the keys of a database. Keys that are there all the while are
/// met at least once.
pub struct Sweep(NonNull<raw::RedisModuleScanCursor>);

// SAFETY: main thread: only code that runs there has it.
unsafe impl Send for Sweep {}

impl Sweep {
    /// A new walk.
    pub fn new() -> Option<Sweep> {
        // SAFETY: no arguments.
        NonNull::new(unsafe { api!(RedisModule_ScanCursorCreate)() }).map(Sweep)
    }

    /// Meets a few more keys of the selected database, and gives those of them
    /// that hold hashes to `meet`. False when the walk is over.
    pub fn step(&mut self, ctx: Ctx<'_>, meet: &mut dyn FnMut(&Str)) -> bool {
        let mut meet = meet;
        // SAFETY: a valid context and a live cursor; `met` gets the reference
        // to `meet` back, and only while this call runs.
        let more = unsafe {
            api!(RedisModule_Scan)(
                ctx.raw(),
                self.0.as_ptr(),
                Some(met),
                std::ptr::from_mut(&mut meet).cast(),
            )
        };
        more != 0
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.0.as_ptr()) };
    }
}

unsafe extern "C" fn met(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    meet: *mut c_void,
) {
    let _ = guard::guarded(|| {
        // SAFETY: the server lends us the name and the key, which may be null,
        // for the call; `meet` is what `step` passed.
        unsafe {
            if !key.is_null()
                && api!(RedisModule_KeyType)(key) as isize == raw::REDISMODULE_KEYTYPE_HASH
            {
                let meet = &mut *meet.cast::<&mut dyn FnMut(&Str)>();
                meet(Str::borrow(name));
            }
        }
    });
}
