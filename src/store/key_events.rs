//! Key events: the module's own, and those of the plain commands by which changes are propagated.
//! The store notes them while a command runs. The server layer raises them when the command is
//! done, because other modules may do anything when they receive one.

use super::propagation::{Plain, Propagation};
use super::Store;
use crate::ffi::{EventClass, MainThread, Str, Text};
use std::cell::RefCell;
use std::ffi::CStr;

/// A key event to raise.
pub struct KeyEvent {
    /// The database of the key.
    pub db: i32,
    /// The key.
    pub key: Text,
    /// The class to which the event belongs.
    pub class: EventClass,
    /// The name of the event.
    pub name: &'static CStr,
}

/// What happened to a lock. Each has a key event of the module's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request was granted.
    Acquired,
    /// Holds were given back or removed by FORCEUNLOCK.
    Released,
    /// Holds lapsed.
    Lapsed,
    /// The lock is held, and the first waiter has joined its queue.
    Wanted,
}

impl What {
    /// The name of the key event.
    fn name(self) -> &'static CStr {
        match self {
            What::Acquired => c"rwlock.acquire",
            What::Released => c"rwlock.release",
            What::Lapsed => c"rwlock.expire",
            What::Wanted => c"rwlock.wait",
        }
    }
}

/// The events that are not raised yet, in the order of the changes.
struct Noted {
    events: Vec<KeyEvent>,
    /// The index of the last event of the module's own.
    last_own: Option<usize>,
}

static NOTED: MainThread<RefCell<Noted>> =
    MainThread::new(RefCell::new(Noted { events: Vec::new(), last_own: None }));

/// Takes the events that are not raised yet, in the order of the changes. The caller raises them.
pub fn take_key_events() -> Vec<KeyEvent> {
    let mut noted = NOTED.borrow_mut();
    noted.last_own = None;
    std::mem::take(&mut noted.events)
}

impl Store<'_> {
    /// Notes the module's own event for the lock, if the server is configured to raise events of
    /// modules.
    pub fn notice(&self, what: What) {
        if self.out.asked.has(EventClass::Module) {
            self.note_own(what);
        }
    }

    #[cold]
    fn note_own(&self, what: What) {
        let mut noted = NOTED.borrow_mut();
        let last = noted.last_own.and_then(|at| noted.events.get(at));
        let is_same = |last: &KeyEvent| {
            last.name == what.name()
                && last.db == self.db.number()
                && last.key.bytes() == self.key.bytes()
        };
        // Lapsed readers of one lock are removed one by one. One event is enough for all of them.
        if what == What::Lapsed && last.is_some_and(is_same) {
            return;
        }
        noted.last_own = Some(noted.events.len());
        noted.events.push(self.out.event(self.key, EventClass::Module, what.name()));
    }
}

impl Propagation<'_> {
    /// Notes the events of a plain command that changes a key, if the server is configured to
    /// raise them.
    pub(super) fn note_plain(&self, change: Plain, key: &Str) {
        if self.asked.any() {
            self.note_asked(change, key);
        }
    }

    #[cold]
    fn note_asked(&self, change: Plain, key: &Str) {
        for (class, name) in change.events() {
            if self.asked.has(*class) {
                NOTED.borrow_mut().events.push(self.event(key, *class, name));
            }
        }
    }

    fn event(&self, key: &Str, class: EventClass, name: &'static CStr) -> KeyEvent {
        KeyEvent { db: self.db.number(), key: key.to_text(), class, name }
    }
}
