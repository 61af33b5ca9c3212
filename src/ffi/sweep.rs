//! Walking over all keys of a database, a few at a time.

use super::{api, guard, Db, Str};
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
        // SAFETY: no arguments.
        let cursor = NonNull::new(unsafe { api!(RedisModule_ScanCursorCreate)() })?;
        Some(Sweep { cursor, met: 0 })
    }

    /// Meets a few more keys of the database, and gives those of them that hold
    /// hashes to `meet`. It is the same database in each step. False when the walk is over.
    pub fn step(&mut self, db: Db<'_>, meet: &mut dyn FnMut(&Str)) -> bool {
        let here = db.enter();
        let mut meeting = Meeting { meet, met: 0 };
        // SAFETY: a valid context and a live cursor; `met` gets the pointer to
        // `meeting` back, and only while this call runs.
        let more = unsafe {
            api!(RedisModule_Scan)(
                here.raw(),
                self.cursor.as_ptr(),
                Some(met),
                std::ptr::from_mut(&mut meeting).cast(),
            )
        };
        self.met += meeting.met;
        more != 0
    }

    /// How many keys it has met, of any kind.
    pub fn met(&self) -> u64 {
        self.met
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.cursor.as_ptr()) };
    }
}

/// What a step does with the keys that it meets.
struct Meeting<'m> {
    meet: &'m mut dyn FnMut(&Str),
    met: u64,
}

unsafe extern "C" fn met(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    meeting: *mut c_void,
) {
    let _ = guard::guarded(|| {
        // SAFETY: the server lends us the name and the key, which may be null,
        // for the call; `meeting` is what `step` passed.
        unsafe {
            let meeting = &mut *meeting.cast::<Meeting<'_>>();
            meeting.met += 1;
            if !key.is_null()
                && api!(RedisModule_KeyType)(key) as isize == raw::REDISMODULE_KEYTYPE_HASH
            {
                (meeting.meet)(Str::borrow(name));
            }
        }
    });
}
