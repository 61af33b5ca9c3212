//! Server events, which concern the server as a whole, and key events, which concern keys.

use super::{api, guard, Ctx, Db, Str, Text};
use redis_module::raw;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A server event to which the module can subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server became a primary or a replica.
    RoleChanged,
    /// A replica of the server came online or went offline.
    ReplicaChanged,
    /// The server forked, to write a file or to synchronise a replica, or the child ended.
    ForkChild,
    /// Settings were changed.
    Configured,
    /// The server began or ended to load data.
    Loading,
    /// The server's periodic work, about ten times a second.
    Tick,
    /// A database was flushed.
    Flush,
    /// Two databases were swapped.
    SwapDb,
    /// A client connected or disconnected.
    ClientChange,
    /// The event loop goes to sleep, or wakes up.
    Loop,
    /// An atomic migration of slots to or from this node began or ended. Only servers with
    /// [`Ctx::moves_slots_atomically`] have it.
    SlotMigration,
}

/// A server event that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The server became a primary or a replica.
    Role {
        /// Whether it is a primary now.
        primary: bool,
    },
    /// The server begins to load data.
    Loads,
    /// The server has loaded data, or failed to.
    Loaded,
    /// The listeners may have changed: replicas or the AOF.
    ListenersChanged,
    /// The server did its periodic work.
    Tick,
    /// Settings were changed.
    Configured,
    /// The database of this number was flushed; None: all databases.
    Flushed(Option<i32>),
    /// The contents of these two databases were swapped.
    Swapped(i32, i32),
    /// The client with this id disconnected.
    Disconnected(u64),
    /// The event loop woke up.
    Awake,
    /// The event loop has run its commands and goes to sleep. The server sends what is propagated
    /// now before it sleeps.
    Done,
    /// Slots have come to this node by an atomic migration, with all of their keys.
    SlotsArrived,
    /// Slots have left this node by an atomic migration, with all of their keys.
    SlotsLeft,
}

/// What Valkey 9 calls `VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION`, and the two of its subevents that
/// tell of a migration that has succeeded. Redis has another event with this number.
const SLOT_MIGRATION: u64 = 19;
const SLOT_IMPORT_COMPLETED: u64 = 4;
const SLOT_EXPORT_COMPLETED: u64 = 5;

impl Event {
    fn raw(self) -> raw::RedisModuleEvent {
        let id = match self {
            Event::RoleChanged => raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            Event::ReplicaChanged => raw::REDISMODULE_EVENT_REPLICA_CHANGE,
            Event::ForkChild => raw::REDISMODULE_EVENT_FORK_CHILD,
            Event::Configured => raw::REDISMODULE_EVENT_CONFIG,
            Event::Loading => raw::REDISMODULE_EVENT_LOADING,
            Event::Tick => raw::REDISMODULE_EVENT_CRON_LOOP,
            Event::Flush => raw::REDISMODULE_EVENT_FLUSHDB,
            Event::SwapDb => raw::REDISMODULE_EVENT_SWAPDB,
            Event::ClientChange => raw::REDISMODULE_EVENT_CLIENT_CHANGE,
            Event::Loop => raw::REDISMODULE_EVENT_EVENTLOOP,
            Event::SlotMigration => SLOT_MIGRATION,
        };
        raw::RedisModuleEvent { id, dataver: 1 }
    }
}

/// The callback for server events.
pub trait OnEvent {
    /// Runs right after the event. It must not write keys, except at [`Happened::Done`], when the
    /// server does nothing else.
    fn on_event(ctx: Ctx<'_>, happened: Happened);
}

/// The callback for key events.
pub trait OnKeyEvent {
    /// Runs in the middle of the change of a key. It may note the change, but must not open keys.
    fn on_key_event(ctx: Ctx<'_>, name: &[u8], key: &[u8]);
}

/// A class of key events, as `notify-keyspace-events` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventClass {
    /// Events of keys of any type (`g`).
    Generic,
    /// Events of strings (`$`).
    String,
    /// Events of hashes (`h`).
    Hash,
    /// Events of modules (`d`).
    Module,
}

impl EventClass {
    pub(super) fn raw(self) -> c_int {
        match self {
            EventClass::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
            EventClass::String => raw::REDISMODULE_NOTIFY_STRING,
            EventClass::Hash => raw::REDISMODULE_NOTIFY_HASH,
            EventClass::Module => raw::REDISMODULE_NOTIFY_MODULE,
        }
    }
}

/// The classes of key events that the server is configured to raise.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor(c_int);

impl AskedFor {
    /// Whether the server raises key events of any class.
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether the server raises key events of this class.
    pub fn has(self, class: EventClass) -> bool {
        self.0 & class.raw() != 0
    }
}

/// The name of the event that the module is raising; null: none. The address of the name
/// distinguishes the event from all others.
static RAISING: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

impl Db<'_> {
    /// Raises a key event (a keyspace notification) in this database. The module's own callback
    /// [`OnKeyEvent`] does not get it.
    pub fn raise_key_event(self, class: EventClass, name: &'static CStr, key: &Str) {
        let here = self.enter();
        // A module that gets the event may call a command of this module, which raises more events
        // before this one is done.
        let outer = RAISING.swap(name.as_ptr().cast_mut(), Ordering::Relaxed);
        // SAFETY: the context lives as long as `here`, the name for ever, and the key as long as
        // it is lent.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(
                here.raw(),
                class.raw(),
                name.as_ptr(),
                key.raw(),
            );
        }
        RAISING.store(outer, Ordering::Relaxed);
    }
}

impl Ctx<'_> {
    /// Subscribes `H` to an event. The server keeps one subscription for each event, so `H`
    /// replaces any other. False: the server does not support the event.
    pub fn subscribe<H: OnEvent>(self, event: Event) -> bool {
        // SAFETY: the context lives as long as `self`. The server ends the subscriptions of a
        // module that it unloads, and so never calls what is gone.
        let status = unsafe {
            api!(RedisModule_SubscribeToServerEvent)(self.raw(), event.raw(), Some(happened::<H>))
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Ends the subscription to an event. It must not be called in the callback of any server
    /// event, because the server then walks over its list of subscriptions.
    pub fn unsubscribe(self, event: Event) {
        // SAFETY: the context lives as long as `self`. No callback ends a subscription.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(self.raw(), event.raw(), None) };
    }

    /// Subscribes `H` to events of keys as a whole: a command deletes, renames, moves, expires or
    /// otherwise changes a key, or the server expires or evicts it. The callback gets no events
    /// that the module raises, and none for changes inside a value: to subscribe to those would
    /// slow down every command on the server. False: the server refuses.
    pub fn subscribe_to_keys<H: OnKeyEvent>(self) -> bool {
        let kinds = raw::REDISMODULE_NOTIFY_GENERIC
            | raw::REDISMODULE_NOTIFY_EXPIRED
            | raw::REDISMODULE_NOTIFY_EVICTED;
        // SAFETY: the context lives as long as `self`. The server ends the subscriptions of a
        // module that it unloads, and so never calls what is gone.
        let status = unsafe {
            api!(RedisModule_SubscribeToKeyspaceEvents)(self.raw(), kinds, Some(key_event::<H>))
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// The classes of key events in `notify-keyspace-events`. This is cheap: it reads one variable
    /// of the server.
    pub fn asked_for(self) -> AskedFor {
        // SAFETY: the function has no arguments.
        AskedFor(unsafe { raw::RedisModule_GetNotifyKeyspaceEvents.map_or(0, |tell| tell()) })
    }

    /// A number in a section of INFO; None: there is no such field, or it is not a number from 0 to
    /// 2^64 - 1.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        let [value] = self.info_fields(section, [field]);
        std::str::from_utf8(value?.bytes()).ok()?.parse().ok()
    }

    /// The values of fields in a section of INFO; None for a field that does not exist.
    pub fn info_fields<const N: usize>(
        self,
        section: &CStr,
        fields: [&CStr; N],
    ) -> [Option<Text>; N] {
        // SAFETY: the context lives as long as `self`, and the C strings as long as they are
        // lent. Each value that the server makes is the caller's, and needs no `info`.
        unsafe {
            let info = api!(RedisModule_GetServerInfo)(self.raw(), section.as_ptr());
            let values = fields.map(|field| {
                Text::adopt(api!(RedisModule_ServerInfoGetField)(self.raw(), info, field.as_ptr()))
            });
            api!(RedisModule_FreeServerInfo)(self.raw(), info);
            values
        }
    }
}

unsafe extern "C" fn happened<H: OnEvent>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server lends the context for this call, and passes the data that it
    // documents for the event.
    let (ctx, happened) = unsafe { (Ctx::new(ctx), decode(event.id, subevent, data)) };
    if let (Some(ctx), Some(happened)) = (ctx, happened) {
        let _ = guard::callback(|| H::on_event(ctx, happened));
    }
}

/// Decodes a server event; None: the module does not need it.
///
/// # Safety
/// `data` is null or of the type that the server documents for the event.
unsafe fn decode(event: u64, subevent: u64, data: *mut c_void) -> Option<Happened> {
    match event {
        raw::REDISMODULE_EVENT_FLUSHDB => {
            // SAFETY: the server documents this type for the event, as the caller promises.
            let info = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }?;
            let db = (info.dbnum >= 0).then_some(info.dbnum);
            (subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_END).then_some(Happened::Flushed(db))
        }
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: the server documents this type for the event, as the caller promises.
            let info = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }?;
            Some(Happened::Swapped(info.dbnum_first, info.dbnum_second))
        }
        raw::REDISMODULE_EVENT_CLIENT_CHANGE => {
            // SAFETY: the server documents this type for the event, as the caller promises.
            let info = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }?;
            (subevent == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED)
                .then_some(Happened::Disconnected(info.id))
        }
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => Some(Happened::Role {
            primary: subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
        }),
        raw::REDISMODULE_EVENT_LOADING => match subevent {
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED | raw::REDISMODULE_SUBEVENT_LOADING_FAILED => {
                Some(Happened::Loaded)
            }
            _ => Some(Happened::Loads),
        },
        raw::REDISMODULE_EVENT_EVENTLOOP => Some(match subevent {
            raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP => Happened::Done,
            _ => Happened::Awake,
        }),
        raw::REDISMODULE_EVENT_CONFIG => Some(Happened::Configured),
        raw::REDISMODULE_EVENT_CRON_LOOP => Some(Happened::Tick),
        SLOT_MIGRATION => match subevent {
            SLOT_IMPORT_COMPLETED => Some(Happened::SlotsArrived),
            SLOT_EXPORT_COMPLETED => Some(Happened::SlotsLeft),
            // While it is under way, the node that has the slots serves them as before.
            _ => None,
        },
        _ => Some(Happened::ListenersChanged),
    }
}

unsafe extern "C" fn key_event<H: OnKeyEvent>(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    name: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if std::ptr::eq(name, RAISING.load(Ordering::Relaxed)) {
        return raw::REDISMODULE_OK as c_int;
    }
    let _ = guard::callback(|| {
        // SAFETY: the server lends the context, the name and the key for this call.
        let (ctx, name, key) =
            unsafe { (Ctx::new(ctx), CStr::from_ptr(name).to_bytes(), Str::borrow(key)) };
        if let Some(ctx) = ctx {
            let noted = guard::guarded(|| H::on_key_event(ctx, name, key.bytes()));
            select_back_after_move(ctx, name);
            if let Err(panic) = noted {
                guard::resume(Some(Box::new(panic)));
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

/// The database from which a running MOVE takes the key.
static MOVED_FROM: AtomicI32 = AtomicI32::new(0);

/// Selects the client's own database again after a MOVE. Valkey from 8.1 on, until
/// valkey-io/valkey#4024 was merged, selects the database of an event for the client itself and
/// does not select the old one again. The client's next commands would run in the other database,
/// also on replicas. On all other servers this only changes the database of the context.
fn select_back_after_move(ctx: Ctx<'_>, name: &[u8]) {
    match name {
        b"move_from" => MOVED_FROM.store(ctx.db().number(), Ordering::Relaxed),
        b"move_to" => {
            ctx.select(MOVED_FROM.load(Ordering::Relaxed));
        }
        _ => {}
    }
}
