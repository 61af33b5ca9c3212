//! Walking over all keys of a database, a few at a time.

use super::guard::{self, Panic};
use super::{api, Db, Str};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A walk over the keys of a database. Keys that are there all the while are
/// met at least once.
pub struct Sweep {
    cursor: NonNull<raw::RedisModuleScanCursor>,
    met: u64,
}

impl Sweep {
    /// A new walk.
    pub fn new() -> Option<Sweep> {
        // SAFETY: the function has no arguments.
        let cursor = NonNull::new(unsafe { api!(RedisModule_ScanCursorCreate)() })?;
        Some(Sweep { cursor, met: 0 })
    }

    /// Meets a few more keys of the database, and gives those of them that hold
    /// hashes to `meet`. It is the same database in each step. False when the walk is over.
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

    /// How many keys it has met, of any kind.
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

/// What a step does with the keys that it meets.
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
