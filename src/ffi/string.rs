//! Strings of the server: bytes, never assumed to be UTF-8.

use super::api;
use redis_module::raw::RedisModuleString;
use std::ops::Deref;
use std::ptr::null_mut;

/// A borrowed string of the server, valid as long as its lender lives.
#[repr(transparent)]
pub struct Str(RedisModuleString);

impl Str {
    /// Borrows a string.
    ///
    /// # Safety
    /// `string` is a valid string of the server for all of `'a`.
    pub(super) unsafe fn borrow<'a>(string: *mut RedisModuleString) -> &'a Str {
        // SAFETY: the string lives for all of `'a`, as the caller promises, and `Str` is laid out
        // as what it wraps.
        unsafe { &*string.cast() }
    }

    /// The bytes of the string.
    pub fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the string lives as long as `self`, and nothing changes the bytes of a string
        // that is in use.
        unsafe {
            let start = api!(RedisModule_StringPtrLen)(self.raw(), &mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }

    /// A new reference to the same string. The bytes are not copied.
    pub fn to_text(&self) -> Text {
        // SAFETY: the string lives as long as `self`. The new reference is the result's.
        unsafe { api!(RedisModule_RetainString)(null_mut(), self.raw()) };
        Text(self.raw())
    }

    /// The pointer, for the API, which may change the number of references.
    pub(super) fn raw(&self) -> *mut RedisModuleString {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// A string of the server, with one reference that this value owns.
pub struct Text(*mut RedisModuleString);

impl Text {
    /// A new string with these bytes.
    pub fn new(bytes: &[u8]) -> Text {
        // SAFETY: the server copies the bytes. A string without a context is the caller's.
        Text(unsafe {
            api!(RedisModule_CreateString)(null_mut(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// A number as decimal text.
    pub fn number(number: i64) -> Text {
        // SAFETY: a string without a context is the caller's.
        Text(unsafe { api!(RedisModule_CreateStringFromLongLong)(null_mut(), number) })
    }

    /// Takes over a reference; None: `string` is null.
    ///
    /// # Safety
    /// `string` is null or a valid string of which the caller gives away one
    /// reference.
    pub(super) unsafe fn adopt(string: *mut RedisModuleString) -> Option<Text> {
        (!string.is_null()).then(|| Text(string))
    }
}

impl Deref for Text {
    type Target = Str;
    fn deref(&self) -> &Str {
        // SAFETY: the reference that `self` has keeps the string alive.
        unsafe { Str::borrow(self.0) }
    }
}

impl Clone for Text {
    /// Adds a reference to the same string.
    fn clone(&self) -> Text {
        self.to_text()
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: `self` has one reference, and a drop happens once.
        unsafe { api!(RedisModule_FreeString)(null_mut(), self.0) };
    }
}
