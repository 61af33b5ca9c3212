//! The fields of a hash, one batch after the other.

use super::{api, Key, Str};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A field of a hash and its value.
pub type Field = (Vec<u8>, Vec<u8>);

/// A walk over the fields of a hash. A small hash comes in one batch, a large
/// one bucket by bucket, so who stops early pays little. The hash must not be
/// changed or searched on the way, else a field can come twice.
pub struct Fields<'k> {
    key: &'k Key<'k>,
    cursor: NonNull<raw::RedisModuleScanCursor>,
    batch: Vec<Field>,
    done: bool,
}

impl Key<'_> {
    /// Walks over the fields of a hash.
    pub fn fields(&self) -> Fields<'_> {
        // SAFETY: no arguments; freed when the walk is dropped.
        let cursor = unsafe { api!(RedisModule_ScanCursorCreate)() };
        let Some(cursor) = NonNull::new(cursor) else {
            super::guard::missing("memory for a scan cursor");
        };
        Fields { key: self, cursor, batch: Vec::new(), done: false }
    }
}

impl Iterator for Fields<'_> {
    type Item = Field;

    fn next(&mut self) -> Option<Field> {
        while self.batch.is_empty() && !self.done {
            let batch: *mut Vec<Field> = &mut self.batch;
            // SAFETY: an open key and a live cursor; `collect` gets `batch`
            // back as it is, and only while this call runs.
            let more = unsafe {
                api!(RedisModule_ScanKey)(
                    self.key.raw(),
                    self.cursor.as_ptr(),
                    Some(collect),
                    batch.cast(),
                )
            };
            self.done = more == 0;
            // In the order of the hash, though taken from the end.
            self.batch.reverse();
        }
        self.batch.pop()
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.cursor.as_ptr()) };
    }
}

/// Copies one field. Cannot panic: allocation failures abort in the server's
/// allocator.
unsafe extern "C" fn collect(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    batch: *mut c_void,
) {
    // SAFETY: the server lends both strings for this call; `batch` is the
    // vector that `next` passed and does not touch meanwhile.
    unsafe {
        let field = Str::borrow(field).bytes().to_vec();
        let value = Str::borrow(value).bytes().to_vec();
        (*batch.cast::<Vec<Field>>()).push((field, value));
    }
}
