//! Whether the server could evict locks: keys that it takes away when memory
//! runs short, while their holders go on.

use super::lock;
use crate::ffi::{Ctx, Info};
use std::ffi::CString;
use std::sync::{Mutex, TryLockError};

/// What to say about it; None: nothing.
static WARNING: Mutex<Option<CString>> = Mutex::new(None);

/// Looks at the settings that decide it, and says so in the log when they are
/// no longer what they were.
pub(super) fn look(ctx: Ctx<'_>) {
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
    let mut known = lock(&WARNING);
    if *known != warning {
        if let Some(text) = warning.as_ref().and_then(|warning| warning.to_str().ok()) {
            ctx.warn(&format!("rwlock: {text}"));
        }
        *known = warning;
    }
}

/// The same in INFO.
pub(super) fn tell(info: &mut Info<'_>) {
    let known = match WARNING.try_lock() {
        Ok(known) => known,
        Err(TryLockError::Poisoned(known)) => known.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    if let Some(warning) = known.as_ref() {
        info.text(c"warning", warning);
    }
}
