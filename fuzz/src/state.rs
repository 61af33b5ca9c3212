//! The state of the small server, as the module API uses it.

use crate::api::{Config, Text};
use crate::keys::{Bytes, Keys};
use crate::reply::Token;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

pub(crate) type Run = unsafe extern "C" fn(*mut c_void, *mut *mut Text, c_int) -> c_int;
pub(crate) type FreeCallback = unsafe extern "C" fn(*mut c_void, *mut c_void);
pub(crate) type DisconnectCallback = unsafe extern "C" fn(*mut c_void, *mut Blocked);
pub(crate) type EventCallback = unsafe extern "C" fn(*mut c_void, Event, u64, *mut c_void);
pub(crate) type KeyEventCallback =
    unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *mut c_void) -> c_int;
pub(crate) type TimerCallback = unsafe extern "C" fn(c_int, *mut c_void, c_int);

/// A server event.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Event {
    pub id: u64,
    pub version: u64,
}

/// A command of the module.
pub(crate) struct Command {
    pub name: Bytes,
    pub run: Run,
    pub arity: c_int,
}

/// A client that the module has blocked.
pub(crate) struct Blocked {
    pub client: u64,
    pub reply: Run,
    pub timeout: Run,
    pub free: FreeCallback,
    pub disconnect: Option<DisconnectCallback>,
}

/// The state of the server, as the module API uses it.
pub(crate) struct State {
    /// Unix time in ms.
    pub now: i64,
    pub primary: Keys,
    /// The keys of a replica that has no module.
    pub replica: Keys,
    pub selected: i32,
    /// The client whose command runs.
    pub client: u64,
    pub connected: BTreeSet<u64>,
    /// Whether the command that runs may block its client.
    pub may_block: bool,
    /// Whether `notify-keyspace-events` asks for all events.
    pub notifies: bool,
    #[expect(clippy::vec_box, reason = "the module keeps pointers")]
    pub commands: Vec<Box<Command>>,
    pub configs: Vec<Config>,
    pub events: BTreeMap<u64, EventCallback>,
    pub key_events: Option<KeyEventCallback>,
    pub timer: Option<(c_int, TimerCallback, *mut c_void)>,
    pub reply: Vec<Token>,
    /// Where the keys of a command are, while the command is asked for them.
    pub key_positions: Option<Vec<usize>>,
    #[expect(clippy::vec_box, reason = "the module keeps pointers")]
    pub blocked: Vec<Box<Blocked>>,
    /// Clients that the module has unblocked, with its answers.
    pub unblocked: Vec<(Box<Blocked>, *mut c_void)>,
    /// In a callback of a blocked client: its handle, and the module's answer.
    pub handle: *mut Blocked,
    pub private: *mut c_void,
    /// How many keys the module has open.
    pub handles: usize,
}

/// When each server starts.
pub const START: i64 = 1_800_000_000_000;

impl State {
    pub const fn new() -> State {
        State {
            now: START,
            primary: Keys(BTreeMap::new()),
            replica: Keys(BTreeMap::new()),
            selected: 0,
            client: 0,
            connected: BTreeSet::new(),
            may_block: false,
            notifies: false,
            commands: Vec::new(),
            configs: Vec::new(),
            events: BTreeMap::new(),
            key_events: None,
            timer: None,
            reply: Vec::new(),
            key_positions: None,
            blocked: Vec::new(),
            unblocked: Vec::new(),
            handle: null_mut(),
            private: null_mut(),
            handles: 0,
        }
    }
}

thread_local! {
    pub(crate) static STATE: RefCell<State> = const { RefCell::new(State::new()) };
}
