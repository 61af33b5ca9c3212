//! Panics: none crosses into the server, each is an error reply and a log line.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs `work`; a panic in it comes back as its text.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic))
}

/// Has panics reported in the server's log, instead of on a standard error
/// that a daemon does not have.
pub fn log_panics() {
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
