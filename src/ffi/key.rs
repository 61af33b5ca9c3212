//! Open keys.

use super::{api, Str, Text};
use redis_module::raw;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

/// The value by which the API marks the deletion of a field.
const DELETION: *mut raw::RedisModuleString = std::ptr::without_provenance_mut(1);

/// The access for which a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. A key that does not exist or has expired is not opened. An expired key is not
    /// removed, and the access does not count as a use of the key.
    Read,
    /// Reading and writing. A key that does not exist is opened as an empty one.
    Write,
}

impl Access {
    pub(super) fn mode(self) -> c_int {
        let mode = match self {
            // Redis 7.0 supports only NOTOUCH: it removes expired keys and counts misses. The other
            // servers must not remove expired keys here. That raises key events, and Valkey 8.1
            // leaves the client in the database of the event.
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

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// The key does not exist.
    Empty,
    /// A string.
    String,
    /// A hash.
    Hash,
    /// Any other type.
    Other,
}

/// An open key, closed when it is dropped.
///
/// Methods that write take `&mut self`, so bytes that were lent before cannot be read after. A key
/// may have only one open handle, and while it is open no command that changes the key may be
/// called: the server's handle points to the value, and would point to freed memory.
/// [`Db::open`](super::Db::open) says how that is ensured.
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

    /// The type of the value.
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

    /// When the key expires, as unix time in ms; None: never, or the key does not exist.
    pub fn expiry(&self) -> Option<i64> {
        // SAFETY: the handle is open until `self` is dropped.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(self.raw()) };
        (at != i64::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    /// Sets when the key expires, as unix time in ms; None: never. Does nothing if the key does not
    /// exist or is open for reading.
    pub fn set_expiry(&mut self, at: Option<i64>) {
        let at = at.unwrap_or(i64::from(raw::REDISMODULE_NO_EXPIRE));
        // SAFETY: the handle is open until `self` is dropped.
        unsafe { api!(RedisModule_SetAbsExpire)(self.raw(), at) };
    }

    /// The number of fields of a hash; 0: the key does not exist.
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

    /// Sets a field of a hash; without a value, deletes the field. The first field creates the
    /// hash; the hash is deleted with its last field. Does nothing if the key has another type or
    /// is open for reading.
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

    /// Sets two fields of a hash, which costs less than one after the other. Otherwise like
    /// [`Key::hash_set`].
    pub fn hash_set_two(&mut self, [(field, value), (other, its)]: [(&Str, &Str); 2]) {
        // SAFETY: as in `hash_set`.
        unsafe {
            api!(RedisModule_HashSet)(
                self.raw(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field.raw(),
                value.raw(),
                other.raw(),
                its.raw(),
                null_mut::<raw::RedisModuleString>(),
            );
        }
    }

    /// The bytes of a string; empty: the key does not exist.
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

    /// Replaces the value by a string. `expiry`: unix time in ms; None: never. The string is
    /// written in the raw form, because the server would have to convert any other form when
    /// [`Key::string`] reads it. Does nothing if the key is open for reading.
    pub fn string_set(&mut self, text: &Str, expiry: Option<i64>) {
        let value = text.bytes();
        // SAFETY: the handle is open until `self` is dropped. The server gives as many bytes
        // to write to as `len` says, and nobody else has them: `text` is another string.
        unsafe {
            // Read before the first write: a missing function panics, and the panic must not
            // interrupt the write.
            let delete = api!(RedisModule_DeleteKey);
            let truncate = api!(RedisModule_StringTruncate);
            let bytes_of = api!(RedisModule_StringDMA);
            let set_expiry = api!(RedisModule_SetAbsExpire);
            if value.is_empty() {
                // StringTruncate with length 0 does not create a string.
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

    /// Deletes the key. Does nothing if it is open for reading.
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
