//! Propagates changes to replicas and the AOF, and notes their key events.

use super::WORDS;
use crate::core::End;
use crate::ffi::{AskedFor, Db, EventClass, Key, Propagate, Str, Text};
use crate::planted::{is_planted, Bug};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// The listeners, which hear of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Listeners {
    /// There are no listeners.
    Nobody,
    /// There are no replicas, but an AOF, a backlog from which a replica that comes back may
    /// continue, or a cluster, in which a slot may move.
    Files,
    /// There are replicas, which may have clients that subscribe to channels.
    Replicas,
}

/// The listeners, as a [`Listeners`] number.
static LISTENERS: AtomicU8 = AtomicU8::new(Listeners::Replicas as u8);

/// Sets which listeners there are.
pub fn set_listeners(listeners: Listeners) {
    LISTENERS.store(listeners as u8, Ordering::Relaxed);
}

/// The listeners that were set last; before that [`Listeners::Replicas`].
pub fn listeners() -> Listeners {
    match LISTENERS.load(Ordering::Relaxed) {
        0 => Listeners::Nobody,
        1 => Listeners::Files,
        _ => Listeners::Replicas,
    }
}

/// A plain command by which a change is propagated.
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

    /// The key events that the command raises for each key that it changes.
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

/// Propagates the changes of one lock, and notes their key events.
pub(super) struct Propagation<'c> {
    pub db: Db<'c>,
    /// The classes of key events that the server is configured to raise.
    pub asked: AskedFor,
    /// Whether the server has counted a change of this command that has no listeners.
    counted: Cell<bool>,
}

impl<'c> Propagation<'c> {
    /// Propagates changes in this database.
    #[inline(always)]
    pub fn of(db: Db<'c>) -> Propagation<'c> {
        Propagation { db, asked: db.ctx().asked_for(), counted: Cell::new(false) }
    }

    /// Changes the expiry of an existing key, and propagates that.
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

    /// Propagates a change of the key that is the first argument, and notes its key events.
    pub fn propagate(&self, change: Plain, args: &[&Str]) {
        if let Some(key) = args.first() {
            self.note_plain(change, key);
        }
        if self.has_listeners() {
            self.db.replicate(change.command(), Propagate::Everywhere, args);
        }
    }

    /// Propagates that keys were deleted, and notes their key events. Does nothing without keys.
    pub fn propagate_deletion(&self, keys: &[&Str]) {
        for key in keys {
            self.note_plain(Plain::Del, key);
        }
        if !keys.is_empty() && self.has_listeners() {
            self.db.replicate(Plain::Del.command(), Propagate::Everywhere, keys);
        }
    }

    /// Propagates the new expiry of a key, and notes its key event. `at`: unix time in ms.
    fn propagate_expiry(&self, key: &Str, at: i64) {
        self.note_plain(Plain::PExpireAt, key);
        if self.has_listeners() {
            if is_planted(Bug::RelativeLease) {
                let left = Text::number(at - self.db.ctx().clock_micros() / 1_000);
                return self.db.replicate(c"PEXPIRE", Propagate::Everywhere, &[key, &left]);
            }
            let args = [key, &Text::number(at)];
            self.db.replicate(Plain::PExpireAt.command(), Propagate::Everywhere, &args);
        }
    }

    /// Propagates that a string was set, and notes its key events. `at`: its expiry, unix time in
    /// ms.
    pub fn propagate_set_until(&self, key: &Str, value: &Str, at: i64) {
        self.note_plain(Plain::SetUntil, key);
        if self.has_listeners() {
            let args = [key, value, &WORDS.pxat, &Text::number(at)];
            self.db.replicate(Plain::SetUntil.command(), Propagate::Everywhere, &args);
        }
    }

    /// Whether to propagate a change. Without listeners it is only counted, once for each command:
    /// the server saves an RDB file after a number of changes. If the server cannot count it, the
    /// change is propagated, because the server counts what is propagated.
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
