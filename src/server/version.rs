//! The servers that the module supports.

use crate::ffi::{Ctx, Version};

/// The oldest server: Redis 7.0. Valkey reports 7.2.4 here, the version that it was forked from.
const OLDEST: Version = Version { major: 7, minor: 0, patch: 0 };

/// Refuses a server that is too old. The error is a sentence for the log.
pub fn check(ctx: Ctx<'_>) -> Result<(), String> {
    let found = match ctx.version() {
        Some(version) if version >= OLDEST => return Ok(()),
        Some(Version { major, minor, patch }) => format!("{major}.{minor}.{patch}"),
        None => "older than 6.0.9".into(),
    };
    Err(format!("it needs Redis 7.0 or later, or Valkey 8.0 or later, and this server is {found}"))
}
