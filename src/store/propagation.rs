//! Handing changes on: as key events, to replicas and to the AOF.

use super::WORDS;
use crate::core::End;
use crate::ffi::{AskedFor, Db, EventClass, Key, Propagate, Str, Text};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Who hears of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Listeners {
    /// Nobody.
    Nobody,
    /// The AOF, or the backlog from which a replica that was there may go on.
    Files,
    /// Replicas, perhaps with clients that subscribe to channels.
    Replicas,
}

static LISTENERS: AtomicU8 = AtomicU8::new(Listeners::Replicas as u8);

/// Says for whom changes are written down.
pub fn set_listeners(listeners: Listeners) {
    LISTENERS.store(listeners as u8, Ordering::Relaxed);
}

/// For whom they are.
pub fn listeners() -> Listeners {
    match LISTENERS.load(Ordering::Relaxed) {
        0 => Listeners::Nobody,
        1 => Listeners::Files,
        _ => Listeners::Replicas,
    }
}

/// A plain command by which a change is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    HSet,
    HDel,
    PExpireAt,
    Persist,
    Set,
    /// `SET` with a time of expiry.
    SetUntil,
    Del,
}

impl Plain {
    fn command(self) -> &'static CStr {
        match self {
            Plain::HSet => c"HSET",
            Plain::HDel => c"HDEL",
            Plain::PExpireAt => c"PEXPIREAT",
            Plain::Persist => c"PERSIST",
            Plain::Set | Plain::SetUntil => c"SET",
            Plain::Del => c"DEL",
        }
    }

    /// The key events that the command raises, for each key that it changes.
    pub fn events(self) -> &'static [(EventClass, &'static CStr)] {
        const EXPIRE: (EventClass, &CStr) = (EventClass::Generic, c"expire");
        const SET: (EventClass, &CStr) = (EventClass::String, c"set");
        match self {
            Plain::HSet => &[(EventClass::Hash, c"hset")],
            Plain::HDel => &[(EventClass::Hash, c"hdel")],
            Plain::PExpireAt => &[EXPIRE],
            Plain::Persist => &[(EventClass::Generic, c"persist")],
            Plain::Set => &[SET],
            Plain::SetUntil => &[SET, EXPIRE],
            Plain::Del => &[(EventClass::Generic, c"del")],
        }
    }
}

/// Where a lock's changes are handed on to.
pub(super) struct Propagation<'c> {
    pub db: Db<'c>,
    /// The key events that somebody wants.
    pub asked: AskedFor,
    /// Whether the server has counted a change that nobody hears of.
    counted: Cell<bool>,
}

impl<'c> Propagation<'c> {
    /// Of changes in this database.
    #[inline(always)]
    pub fn of(db: Db<'c>) -> Propagation<'c> {
        Propagation { db, asked: db.ctx().asked_for(), counted: Cell::new(false) }
    }

    /// Gives a key that is there another end.
    pub fn expire(&self, key: &mut Key<'_>, name: &Str, end: End) {
        match end {
            End::At(at) => {
                key.set_expiry(Some(at));
                self.propagate_expiry(name, at);
            }
            End::Never => {
                key.set_expiry(None);
                self.propagate(Plain::Persist, &[name]);
            }
        }
    }

    /// Tells everybody of a change of the key that comes first among the
    /// arguments: as a key event, and as a plain command to replicas and the AOF.
    pub fn propagate(&self, change: Plain, args: &[&Str]) {
        if let Some(key) = args.first() {
            self.note_plain(change, key);
        }
        if self.has_listeners() {
            self.db.replicate(change.command(), Propagate::Everywhere, args);
        }
    }

    /// The same of keys that were deleted.
    pub fn propagate_deletion(&self, keys: &[&Str]) {
        for key in keys {
            self.note_plain(Plain::Del, key);
        }
        if !keys.is_empty() && self.has_listeners() {
            self.db.replicate(Plain::Del.command(), Propagate::Everywhere, keys);
        }
    }

    /// The same of a new time of expiry, a unix time in ms.
    fn propagate_expiry(&self, key: &Str, at: i64) {
        self.note_plain(Plain::PExpireAt, key);
        if self.has_listeners() {
            let args = [key, &Text::number(at)];
            self.db.replicate(Plain::PExpireAt.command(), Propagate::Everywhere, &args);
        }
    }

    /// The same of a string that was set until then, a unix time in ms.
    pub fn propagate_set_until(&self, key: &Str, value: &Str, at: i64) {
        self.note_plain(Plain::SetUntil, key);
        if self.has_listeners() {
            let args = [key, value, &WORDS.pxat, &Text::number(at)];
            self.db.replicate(Plain::SetUntil.command(), Propagate::Everywhere, &args);
        }
    }

    /// Whether anybody hears of a change. If not, the server still counts one
    /// for the command, for the next RDB file.
    fn has_listeners(&self) -> bool {
        if listeners() != Listeners::Nobody {
            return true;
        }
        if !self.counted.get() {
            self.counted.set(self.db.ctx().count_change());
        }
        !self.counted.get()
    }
}
