//! Open keys.

use super::{api, Str, Text};
use redis_module::raw;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

/// How the API marks the deletion of a field, in the place of its value.
const DELETION: *mut raw::RedisModuleString = std::ptr::without_provenance_mut(1);

/// What a key is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; a key that is not there does not open. One that has lapsed is
    /// not there, and is left for others to remove. Counts as no use of the key.
    Read,
    /// Reading and writing; a key that is not there opens as an empty one.
    Write,
}

impl Access {
    pub(super) fn mode(self) -> c_int {
        let mode = match self {
            // Redis 7.0 knows only the first of these flags: it removes lapsed keys, and
            // counts misses. The others must not remove them, in a database other
            // than the client's: Valkey 8.1 leaves the client there whose command
            // made it tell of that.
            Access::Read => {
                raw::REDISMODULE_READ
                    | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                    | raw::REDISMODULE_OPEN_KEY_NOEXPIRE
                    | raw::REDISMODULE_OPEN_KEY_NOSTATS
                    | raw::REDISMODULE_OPEN_KEY_NONOTIFY
            }
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        mode as c_int
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Nothing.
    Empty,
    /// A string.
    String,
    /// A hash.
    Hash,
    /// Something else.
    Other,
}

/// An open key, closed when it is dropped.
///
/// What writes to it takes `&mut self`, so no bytes that were lent out are read after
/// that. Only one handle of a key may be open at a time, and no command may be called
/// meanwhile that changes the key: the server's handle points to the value, and would
/// point to freed memory. [`Db::open`](super::Db::open) says what ensures that.
pub struct Key<'a> {
    raw: NonNull<raw::RedisModuleKey>,
    #[cfg(debug_assertions)]
    _open: super::open_keys::Open,
    ctx: PhantomData<&'a ()>,
}

impl Key<'_> {
    /// # Safety
    /// `key` is null, or an open key that nobody else closes, of a context that lives for
    /// all of `'a`.
    pub(super) unsafe fn new<'a>(
        key: *mut raw::RedisModuleKey,
        #[cfg(debug_assertions)] open: super::open_keys::Open,
    ) -> Option<Key<'a>> {
        NonNull::new(key).map(|raw| Key {
            raw,
            #[cfg(debug_assertions)]
            _open: open,
            ctx: PhantomData,
        })
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleKey {
        self.raw.as_ptr()
    }

    /// What it holds.
    pub fn kind(&self) -> KeyType {
        // SAFETY: the handle is open until `self` is dropped.
        let kind = unsafe { api!(RedisModule_KeyType)(self.raw()) } as isize;
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyType::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => KeyType::String,
            raw::REDISMODULE_KEYTYPE_HASH => KeyType::Hash,
            _ => KeyType::Other,
        }
    }

    /// The unix time in ms at which it expires; None: never, or there is no key.
    pub fn expiry(&self) -> Option<i64> {
        // SAFETY: the handle is open until `self` is dropped.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(self.raw()) };
        (at != i64::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    /// Sets when it expires, a unix time in ms; None: never. Nothing happens to a key that
    /// is not there, or that is open for reading.
    pub fn set_expiry(&mut self, at: Option<i64>) {
        let at = at.unwrap_or(i64::from(raw::REDISMODULE_NO_EXPIRE));
        // SAFETY: the handle is open until `self` is dropped.
        unsafe { api!(RedisModule_SetAbsExpire)(self.raw(), at) };
    }

    /// The number of fields of a hash; 0: there is no key.
    pub fn field_count(&self) -> usize {
        // SAFETY: the handle is open until `self` is dropped.
        unsafe { api!(RedisModule_ValueLength)(self.raw()) }
    }

    /// The value of a field of a hash; None: it has no such field, or the key holds no hash.
    pub fn hash_get(&self, field: &Str) -> Option<Text> {
        let mut value: *mut raw::RedisModuleString = null_mut();
        // SAFETY: the handle is open until `self` is dropped. HASH_NONE says that each field
        // is followed by a place for its value, and null ends the list. The reference that
        // the server puts there is the caller's.
        unsafe {
            api!(RedisModule_HashGet)(
                self.raw(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field.raw(),
                &mut value as *mut *mut raw::RedisModuleString,
                null_mut::<raw::RedisModuleString>(),
            );
            Text::adopt(value)
        }
    }

    /// Sets a field of a hash, which is made if it is not there, or, without a
    /// value, deletes it. The hash goes with its last field. Nothing happens to a key that
    /// holds something else, or that is open for reading.
    pub fn hash_set(&mut self, field: &Str, value: Option<&Str>) {
        // SAFETY: the handle is open until `self` is dropped. HASH_NONE says that each field
        // is followed by its value, and null ends the list. The server keeps copies.
        unsafe {
            api!(RedisModule_HashSet)(
                self.raw(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field.raw(),
                value.map_or(DELETION, Str::raw),
                null_mut::<raw::RedisModuleString>(),
            );
        }
    }

    /// The bytes of a string; none of a key that is not there.
    pub fn string(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the handle is open until `self` is dropped. The bytes stay as they are
        // until the key is written to, which takes `&mut self`: then this borrow is over.
        unsafe {
            let start =
                api!(RedisModule_StringDMA)(self.raw(), &mut len, raw::REDISMODULE_READ as c_int);
            if start.is_null() {
                return &[];
            }
            std::slice::from_raw_parts(start.cast(), len)
        }
    }

    /// Makes it a string, whatever it held, that expires at a unix time in ms; None: never.
    /// In the form in which the server lets us read it: any other it would first turn into
    /// that. Nothing happens to a key that is open for reading.
    pub fn string_set(&mut self, text: &Str, expiry: Option<i64>) {
        let value = text.bytes();
        // SAFETY: the handle is open until `self` is dropped. The server gives as many bytes
        // to write to as `len` says, and nobody else has them: `text` is another string.
        unsafe {
            // Looked for first: no panic leaves the key half written.
            let delete = api!(RedisModule_DeleteKey);
            let truncate = api!(RedisModule_StringTruncate);
            let bytes_of = api!(RedisModule_StringDMA);
            let set_expiry = api!(RedisModule_SetAbsExpire);
            if value.is_empty() {
                // An empty string is not made by its length.
                api!(RedisModule_StringSet)(self.raw(), text.raw());
            } else {
                delete(self.raw());
                truncate(self.raw(), value.len());
                let mut len = 0;
                let start = bytes_of(self.raw(), &mut len, raw::REDISMODULE_WRITE as c_int);
                if !start.is_null() && len == value.len() {
                    std::ptr::copy_nonoverlapping(value.as_ptr().cast(), start, len);
                }
            }
            if let Some(at) = expiry {
                set_expiry(self.raw(), at);
            }
        }
    }

    /// Deletes what it holds. Nothing happens to a key that is open for reading.
    pub fn delete(&mut self) {
        // SAFETY: the handle is open until `self` is dropped.
        unsafe { api!(RedisModule_DeleteKey)(self.raw()) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that nobody else closes it, and a drop happens once.
        unsafe { api!(RedisModule_CloseKey)(self.raw()) };
    }
}
