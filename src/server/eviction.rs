//! The warning that the server can evict locks. A server that runs out of memory may delete the
//! keys of a lock while its holders still work.

use crate::ffi::{Ctx, Info, MainThread};
use std::cell::RefCell;
use std::ffi::CString;

/// The present warning; None: the server cannot evict locks.
static WARNING: MainThread<RefCell<Option<CString>>> = MainThread::new(RefCell::new(None));

/// Reads the server's settings for eviction, and logs the warning when it has changed.
pub(super) fn detect(ctx: Ctx<'_>) {
    let [limit, policy] = ctx.info_fields(c"memory", [c"maxmemory", c"maxmemory_policy"]);
    let limited = limit.is_some_and(|limit| limit.bytes() != b"0");
    let policy = policy.map(|policy| policy.bytes().escape_ascii().to_string());
    // Every other policy may evict keys with an expiry, which locks have.
    let risky = policy.filter(|policy| limited && policy != "noeviction");
    let warning = risky.and_then(|policy| {
        let text = format!(
            "maxmemory-policy {policy} can evict locks that are held, use noeviction or an \
             instance without maxmemory"
        );
        CString::new(text).ok()
    });
    if *WARNING.borrow() != warning {
        if let Some(text) = warning.as_ref().and_then(|warning| warning.to_str().ok()) {
            ctx.warn(&format!("rwlock: {text}"));
        }
        WARNING.replace(warning);
    }
}

/// Writes the warning into INFO, if there is one.
pub(super) fn write_warning(info: &mut Info<'_>) {
    if let Some(warning) = WARNING.borrow().as_ref() {
        info.text(c"warning", warning);
    }
}
