//! Walks over the fields of a hash in batches.

use super::guard::{self, Panic};
use super::{api, Key, Str};
use redis_module::raw;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A field of a hash and its value.
pub type Field = (Vec<u8>, Vec<u8>);

/// A walk over the fields of a hash. The server returns a small hash in one batch and a large hash
/// bucket by bucket, so it costs little to stop early. The caller must not change or search the
/// hash during the walk, else a field can come twice.
pub struct Fields<'k> {
    key: &'k Key<'k>,
    cursor: NonNull<raw::RedisModuleScanCursor>,
    batch: Batch,
    done: bool,
}

/// The fields of one step of the server's scan, in reverse order.
#[derive(Default)]
struct Batch {
    fields: Vec<Field>,
    panic: Option<Panic>,
}

impl Key<'_> {
    /// Walks over the fields of a hash.
    pub fn fields(&self) -> Fields<'_> {
        // SAFETY: the function has no arguments.
        let cursor = unsafe { api!(RedisModule_ScanCursorCreate)() };
        let Some(cursor) = NonNull::new(cursor) else {
            super::guard::missing("memory for a scan cursor");
        };
        Fields { key: self, cursor, batch: Batch::default(), done: false }
    }
}

impl Iterator for Fields<'_> {
    type Item = Field;

    fn next(&mut self) -> Option<Field> {
        while self.batch.fields.is_empty() && !self.done {
            let batch: *mut Batch = &mut self.batch;
            // SAFETY: `self` borrows the open key and has the cursor. The server passes `batch`
            // on to `collect` and forgets it when this call is over.
            let more = unsafe {
                api!(RedisModule_ScanKey)(
                    self.key.raw(),
                    self.cursor.as_ptr(),
                    Some(collect),
                    batch.cast(),
                )
            };
            guard::resume(self.batch.panic.take());
            self.done = more == 0;
            // Fields are taken from the end, but shall come in the order of the hash.
            self.batch.fields.reverse();
        }
        self.batch.fields.pop()
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        // SAFETY: `fields` made the cursor, and a drop happens once.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.cursor.as_ptr()) };
    }
}

/// Copies one field.
unsafe extern "C" fn collect(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    batch: *mut c_void,
) {
    // SAFETY: `batch` is what `next` passed, which does not touch it meanwhile.
    let Batch { fields, panic } = unsafe { &mut *batch.cast::<Batch>() };
    guard::carry(panic, || {
        // SAFETY: the server lends both strings for this call.
        let (field, value) = unsafe { (Str::borrow(field), Str::borrow(value)) };
        fields.push((field.bytes().to_vec(), value.bytes().to_vec()));
    });
}
