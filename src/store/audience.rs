//! Handing changes on, to replicas and to the AOF.

use super::Store;
use crate::ffi::{Propagate, Str, Text};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Who hears of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Audience {
    /// Nobody.
    Nobody,
    /// The AOF, or the backlog from which a replica that was there may go on.
    Files,
    /// Replicas, perhaps with clients that subscribe to channels.
    Replicas,
}

static AUDIENCE: AtomicU8 = AtomicU8::new(Audience::Replicas as u8);

/// Says for whom changes are written down.
pub fn write_for(audience: Audience) {
    AUDIENCE.store(audience as u8, Ordering::Relaxed);
}

/// For whom they are.
pub fn audience() -> Audience {
    match AUDIENCE.load(Ordering::Relaxed) {
        0 => Audience::Nobody,
        1 => Audience::Files,
        _ => Audience::Replicas,
    }
}

impl Store<'_> {
    /// Hands a change on as a plain command.
    pub(super) fn propagate(&self, command: &CStr, args: &[&Str]) {
        if self.is_heard() {
            self.ctx.replicate(command, Propagate::Everywhere, args);
        }
    }

    /// Hands a new time of expiry on, a unix time in ms.
    pub(super) fn propagate_expiry(&self, key: &Str, at: i64) {
        if self.is_heard() {
            let args = [key, &Text::number(at)];
            self.ctx.replicate(c"PEXPIREAT", Propagate::Everywhere, &args);
        }
    }

    /// Whether anybody hears of a change. If not, the server still counts one
    /// for the command, for the next RDB file.
    pub(super) fn is_heard(&self) -> bool {
        if audience() != Audience::Nobody {
            return true;
        }
        if !self.counted.get() {
            self.counted.set(self.ctx.count_change());
        }
        !self.counted.get()
    }
}
