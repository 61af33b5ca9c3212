//! What belongs to the main thread.

use std::ops::Deref;

/// A static of the module. The server calls a module on its main thread, and
/// this one starts no thread of its own: so there is nobody to lock it from.
pub struct MainThread<T>(T);

// SAFETY: every use goes through a callback of the server's, see above.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// One with this content.
    pub const fn new(content: T) -> MainThread<T> {
        MainThread(content)
    }
}

impl<T> Deref for MainThread<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
