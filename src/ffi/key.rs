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
pub enum Kind {
    /// Nothing.
    Empty,
    /// A string.
    String,
    /// A hash.
    Hash,
    /// Something else.
    Other,
}

/// An open key. While it is open, the key must not be changed by another road
/// (a call of a command, a second handle): the server's handle would point to
/// what is gone.
pub struct Key<'a> {
    raw: NonNull<raw::RedisModuleKey>,
    ctx: PhantomData<&'a ()>,
}

impl Key<'_> {
    /// # Safety
    /// `key` is null or a key that was just opened in a context that lives as
    /// long as the result, and that nobody else closes.
    pub(super) unsafe fn new<'a>(key: *mut raw::RedisModuleKey) -> Option<Key<'a>> {
        NonNull::new(key).map(|raw| Key { raw, ctx: PhantomData })
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleKey {
        self.raw.as_ptr()
    }

    /// What it holds.
    pub fn kind(&self) -> Kind {
        // SAFETY: an open key.
        let kind = unsafe { api!(RedisModule_KeyType)(self.raw()) } as isize;
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => Kind::String,
            raw::REDISMODULE_KEYTYPE_HASH => Kind::Hash,
            _ => Kind::Other,
        }
    }

    /// The unix time in ms at which it expires; None without expiry.
    pub fn expiry(&self) -> Option<i64> {
        // SAFETY: an open key.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(self.raw()) };
        (at != i64::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    /// Sets when it expires, a unix time in ms; None: never.
    pub fn set_expiry(&self, at: Option<i64>) {
        let at = at.unwrap_or(i64::from(raw::REDISMODULE_NO_EXPIRE));
        // SAFETY: an open key. Fails only on one that is empty or read-only.
        unsafe { api!(RedisModule_SetAbsExpire)(self.raw(), at) };
    }

    /// The number of fields of a hash.
    pub fn field_count(&self) -> usize {
        // SAFETY: an open key.
        unsafe { api!(RedisModule_ValueLength)(self.raw()) }
    }

    /// The value of a field of a hash.
    pub fn hash_get(&self, field: &Str) -> Option<Text> {
        let mut value: *mut raw::RedisModuleString = null_mut();
        // SAFETY: an open key; a field and where to put its value, ended by
        // null. The server gives us a reference of the value.
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
    /// value, deletes it. The hash goes with its last field.
    pub fn hash_set(&self, field: &Str, value: Option<&Str>) {
        // SAFETY: an open key; a field and a value, ended by null. The server
        // copies both.
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

    /// The bytes of a string.
    pub fn string(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: an open key. The bytes stay while nothing writes to the key,
        // and every writing function of ours would need the borrow to be over.
        unsafe {
            let start =
                api!(RedisModule_StringDMA)(self.raw(), &mut len, raw::REDISMODULE_READ as c_int);
            if start.is_null() {
                return &[];
            }
            std::slice::from_raw_parts(start.cast(), len)
        }
    }

    /// Makes it a string, whatever it held, without expiry. In the form in
    /// which the server lets us read it: any other it would first turn into that.
    pub fn string_set(&mut self, text: &Str) {
        let value = text.bytes();
        // SAFETY: an open key. The server gives as many bytes to write to as
        // were asked for; where there is no string to make (an empty one is not
        // made this way) none or another number. Otherwise it counts its own
        // reference of the text.
        unsafe {
            if value.is_empty() {
                api!(RedisModule_StringSet)(self.raw(), text.raw());
                return;
            }
            api!(RedisModule_DeleteKey)(self.raw());
            api!(RedisModule_StringTruncate)(self.raw(), value.len());
            let mut len = 0;
            let write = raw::REDISMODULE_WRITE as c_int;
            let start = api!(RedisModule_StringDMA)(self.raw(), &mut len, write);
            if !start.is_null() && len == value.len() {
                std::ptr::copy_nonoverlapping(value.as_ptr().cast(), start, len);
            }
        }
    }

    /// Deletes what it holds.
    pub fn delete(&mut self) {
        // SAFETY: an open key.
        unsafe { api!(RedisModule_DeleteKey)(self.raw()) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once.
        unsafe { api!(RedisModule_CloseKey)(self.raw()) };
    }
}
