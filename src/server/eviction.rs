//! Whether the server could evict locks: keys that it takes away when memory
//! runs short, while their holders go on.

use crate::ffi::{Ctx, Info, MainThread};
use std::cell::RefCell;
use std::ffi::CString;

/// What to say about it; None: nothing.
static WARNING: MainThread<RefCell<Option<CString>>> = MainThread::new(RefCell::new(None));

/// Looks at the settings that decide it, and says so in the log when they are
/// no longer what they were.
pub(super) fn detect(ctx: Ctx<'_>) {
    let [limit, policy] = ctx.info_fields(c"memory", [c"maxmemory", c"maxmemory_policy"]);
    let limited = limit.is_some_and(|limit| limit.bytes() != b"0");
    let policy = policy.map(|policy| policy.bytes().escape_ascii().to_string());
    // Locks have expiries: no policy but this one spares them.
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

/// The same in INFO.
pub(super) fn tell(info: &mut Info<'_>) {
    if let Some(warning) = WARNING.borrow().as_ref() {
        info.text(c"warning", warning);
    }
}
