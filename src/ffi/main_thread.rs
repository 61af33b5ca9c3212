//! Statics that only the main thread uses.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread on which the module was loaded; 0: it is not loaded.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// A static of the module. It needs no lock, because the server calls a module on its main thread,
/// and this module starts no threads. A use on another thread panics.
pub struct MainThread<T>(T);

// SAFETY: `try_get` lends the content out on one thread only, the one that loaded the module,
// and a static is never dropped.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// A static with this content.
    pub const fn new(content: T) -> MainThread<T> {
        MainThread(content)
    }

    /// The content; None: this is not the main thread, for example in the report of a crash.
    #[inline(always)]
    pub fn try_get(&self) -> Option<&T> {
        (this_thread() == MAIN.load(Ordering::Relaxed)).then_some(&self.0)
    }
}

impl<T> Deref for MainThread<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.try_get().unwrap_or_else(|| elsewhere())
    }
}

/// Makes the current thread the main thread. To be called when the module is loaded.
pub(super) fn is_here() {
    MAIN.store(this_thread(), Ordering::Relaxed);
}

#[inline(always)]
fn this_thread() -> usize {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

#[cold]
#[expect(clippy::panic, reason = "nothing safe can be done; a panic is an error reply")]
fn elsewhere() -> ! {
    panic!("used outside of the server's main thread")
}
