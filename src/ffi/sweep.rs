//! Walks over all keys of a database, a few in each step.

use super::guard::{self, Panic};
use super::{api, Db, Str};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A walk over the keys of a database. A key that exists during the whole walk is visited at least
/// once.
pub struct Sweep {
    cursor: NonNull<raw::RedisModuleScanCursor>,
    met: u64,
}

impl Sweep {
    /// Begins a walk; None: there is no memory.
    pub fn new() -> Option<Sweep> {
        // SAFETY: the function has no arguments.
        let cursor = NonNull::new(unsafe { api!(RedisModule_ScanCursorCreate)() })?;
        Some(Sweep { cursor, met: 0 })
    }

    /// Visits a few more keys, and calls `meet` for each that is a hash. The caller must pass the
    /// same database in each step. False: the walk is over.
    pub fn step(&mut self, db: Db<'_>, meet: &mut dyn FnMut(&Str)) -> bool {
        let here = db.enter();
        let mut meeting = Meeting { meet, met: 0, panic: None };
        // SAFETY: the context lives as long as `here`, and `self` has the cursor. The server
        // passes `meeting` on to `met` and forgets it when this call is over.
        let more = unsafe {
            api!(RedisModule_Scan)(
                here.raw(),
                self.cursor.as_ptr(),
                Some(met),
                std::ptr::from_mut(&mut meeting).cast(),
            )
        };
        self.met += meeting.met;
        guard::resume(meeting.panic);
        more != 0
    }

    /// The number of keys of any type that the walk has visited.
    pub fn met(&self) -> u64 {
        self.met
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        // SAFETY: `new` made the cursor, and a drop happens once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.cursor.as_ptr()) };
    }
}

/// The state of one step.
struct Meeting<'m> {
    meet: &'m mut dyn FnMut(&Str),
    met: u64,
    panic: Option<Panic>,
}

unsafe extern "C" fn met(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    meeting: *mut c_void,
) {
    // SAFETY: `meeting` is what `step` passed, which does not touch it meanwhile.
    let Meeting { meet, met, panic } = unsafe { &mut *meeting.cast::<Meeting<'_>>() };
    *met += 1;
    guard::carry(panic, || {
        // SAFETY: the server lends the name for this call, and the key if it is not null.
        unsafe {
            if !key.is_null()
                && api!(RedisModule_KeyType)(key) as isize == raw::REDISMODULE_KEYTYPE_HASH
            {
                meet(Str::borrow(name));
            }
        }
    });
}
