//! Guards against panics: none crosses into the server. Each panic is a line in the log. If a
//! client waits for a reply, it gets an error.

use super::log;
use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The callback that recovers from a panic.
pub trait OnPanic {
    /// Runs after a panic ended a function that the server calls, which may have done half of its
    /// work. It must not use the server's keys.
    fn recover();
}

static RECOVER: OnceLock<fn()> = OnceLock::new();

/// Runs `work`. The error is the text of a panic in it, which is in the log already. Changes that
/// `work` made before the panic stay.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic))
}

/// Runs all the work of a function that the server calls. The error is the text of a panic in it;
/// then [`OnPanic::recover`] has run.
pub(super) fn callback<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    guarded(work).inspect_err(|_| recover())
}

/// The payload of a panic.
pub(super) type Panic = Box<dyn Any + Send>;

/// Runs `work` in a function that the server calls during a call from the module. A panic must not
/// cross the server, so it is kept in `panic` for [`resume`]. After a panic `work` is not run any
/// more.
pub(super) fn carry(panic: &mut Option<Panic>, work: impl FnOnce()) {
    if panic.is_none() {
        *panic = catch_unwind(AssertUnwindSafe(work)).err();
    }
}

/// Continues a panic that [`carry`] kept. To be called after the module's call into the server.
pub(super) fn resume(panic: Option<Panic>) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

#[cold]
fn recover() {
    if let Some(recover) = RECOVER.get() {
        // A panic in the recovery is in the log, too.
        let _ = guarded(recover);
    }
}

/// Writes panics to the server's log from now on, because a daemon has no standard error, and runs
/// `H` after those that end a callback.
pub fn watch_panics<H: OnPanic>() {
    RECOVER.get_or_init(|| H::recover);
    std::panic::set_hook(Box::new(|panic| {
        let line = format!("rwlock: bug, please report: {panic}");
        log::write(null_mut(), c"warning", &line);
    }));
}

/// Panics because this server does not have a function of the module API.
#[cold]
#[expect(clippy::panic, reason = "a panic is an error reply here; see `guarded`")]
pub(super) fn missing(name: &str) -> ! {
    panic!("the server lacks {name}")
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
