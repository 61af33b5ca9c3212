//! What the module asks of the server that loads it.

use crate::ffi::{Ctx, Version};

/// The oldest server: Redis 7.0. Valkey tells 7.2.4 here from its fork on.
const OLDEST: Version = Version { major: 7, minor: 0, patch: 0 };

/// Refuses a server that is too old, in one clear sentence.
pub fn check(ctx: Ctx<'_>) -> Result<(), String> {
    match ctx.version() {
        Some(version) if version >= OLDEST => Ok(()),
        version => Err(format!(
            "needs Redis 7.0 or later, or Valkey 8.0 or later; this server is {}",
            version.map_or("older than 6.0.9".into(), |v| format!(
                "{}.{}.{}",
                v.major, v.minor, v.patch
            ))
        )),
    }
}
