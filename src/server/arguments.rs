//! The arguments of `loadmodule`.

use crate::core::Policy;
use crate::engine::Settings;

/// Reads `name value` pairs. What is wrong is said in the error.
pub fn settings(args: &[&[u8]]) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for pair in args.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("argument '{}' has no value", pair[0].escape_ascii()));
        };
        let known = match name.to_ascii_lowercase().as_slice() {
            b"policy" => policy(value).map(|policy| settings.policy = policy),
            b"deadlock-detection" => yes_or_no(value).map(|on| settings.deadlock_detection = on),
            b"max-waiters" => number(value).map(|max| settings.max_waiters = max),
            b"fence-ttl" => number(value).map(|ttl| settings.fence_ttl = ttl),
            _ => return Err(format!("unknown argument '{}'", name.escape_ascii())),
        };
        known.ok_or_else(|| {
            format!("argument '{}' cannot be '{}'", name.escape_ascii(), value.escape_ascii())
        })?;
    }
    Ok(settings)
}

fn policy(value: &[u8]) -> Option<Policy> {
    match value.to_ascii_lowercase().as_slice() {
        b"fifo" => Some(Policy::Fifo),
        b"prefer-readers" => Some(Policy::PreferReaders),
        b"prefer-writers" => Some(Policy::PreferWriters),
        _ => None,
    }
}

fn yes_or_no(value: &[u8]) -> Option<bool> {
    match value.to_ascii_lowercase().as_slice() {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

fn number<T: TryFrom<u64>>(value: &[u8]) -> Option<T> {
    let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    number.try_into().ok()
}
