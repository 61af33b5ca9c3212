//! Panics: none crosses into the server. Each is a line in the log, and an error reply
//! where there is a client to be told.

use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::OnceLock;

/// What to do after a panic.
pub trait OnPanic {
    /// A callback of the server's ended in a panic: what it worked on may be half done.
    /// Runs in any callback, and must not use the server's keys.
    fn recover();
}

static RECOVER: OnceLock<fn()> = OnceLock::new();

/// Runs `work`; the error is the text of a panic in it, which is in the log already.
/// What `work` has changed stays as it was left.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic))
}

/// The same for all that a callback of the server's does: after a panic
/// [`OnPanic::recover`] runs.
pub(super) fn callback<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    guarded(work).inspect_err(|_| recover())
}

/// What a panic is about.
pub(super) type Panic = Box<dyn Any + Send>;

/// Runs `work` in a function that the server calls while a call of ours waits: the panic,
/// which must not cross the server, waits too. After one nothing is run any more.
pub(super) fn carry(panic: &mut Option<Panic>, work: impl FnOnce()) {
    if panic.is_none() {
        *panic = catch_unwind(AssertUnwindSafe(work)).err();
    }
}

/// The call of ours is over: goes on with a panic that waited.
pub(super) fn resume(panic: Option<Panic>) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

#[cold]
fn recover() {
    if let Some(recover) = RECOVER.get() {
        // Another panic is in the log, too.
        let _ = guarded(recover);
    }
}

/// Has panics logged by the server, for a daemon has no standard error, and has `H`
/// recover from those that end a callback.
pub fn watch_panics<H: OnPanic>() {
    RECOVER.get_or_init(|| H::recover);
    std::panic::set_hook(Box::new(|panic| {
        redis_module::logging::log_warning(format!("rwlock: bug, please report: {panic}"));
    }));
}

/// A function of the module API that this server does not have.
#[cold]
#[expect(clippy::panic, reason = "a panic is an error reply here; see `guarded`")]
pub(super) fn missing(name: &str) -> ! {
    panic!("the server lacks {name}")
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
