//! Server events: what happens to the server as a whole; and key events: what
//! happens to keys.

use super::{api, guard, Ctx, Db, Str, Text};
use redis_module::raw;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Something that can happen to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It became a primary or a replica.
    RoleChanged,
    /// A replica of it came online or went away.
    ReplicaChanged,
    /// It forked, to write a file or for a replica's full synchronisation, or
    /// the child ended.
    ForkChild,
    /// Settings of it were changed.
    Configured,
    /// It loaded a file, or stopped to.
    Loading,
    /// Its regular work, some ten times a second.
    Tick,
    /// A database was flushed.
    Flush,
    /// Two databases were swapped.
    SwapDb,
    /// A client connected or disconnected.
    ClientChange,
    /// Its event loop goes to sleep, or wakes up.
    Loop,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It became a primary or a replica.
    Role {
        /// A primary.
        primary: bool,
    },
    /// It begins to load a file.
    Loads,
    /// It is done with loading, or gave up.
    Loaded,
    /// It may have more or fewer replicas, or an AOF that it had not.
    ListenersChanged,
    /// A fraction of a second went by.
    Tick,
    /// Settings of it were changed.
    Configured,
    /// A database is empty now; None: all.
    Flushed(Option<i32>),
    /// The content of these two has changed places.
    Swapped(i32, i32),
    /// The client with this id is gone.
    Disconnected(u64),
    /// The event loop woke up, to do what it is asked.
    Awake,
    /// It has done all, and what is handed on now leaves before it sleeps.
    Done,
}

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
        };
        raw::RedisModuleEvent { id, dataver: 1 }
    }
}

/// What to do when it happens.
pub trait OnEvent {
    /// Called right after the event. Keys must not be written here, but for
    /// [`Happened::Done`], where nothing else is going on.
    fn on_event(ctx: Ctx<'_>, happened: Happened);
}

/// What to do when a key changes.
pub trait OnKeyEvent {
    /// Called while the change is being made: take note, do not touch keys.
    fn on_key_event(ctx: Ctx<'_>, name: &[u8], key: &[u8]);
}

/// A class of key events, as `notify-keyspace-events` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventClass {
    /// Of keys as a whole (`g`).
    Generic,
    /// Of strings (`$`).
    String,
    /// Of hashes (`h`).
    Hash,
    /// Of modules (`d`).
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

/// The classes of key events that the server's configuration asks for.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor(c_int);

impl AskedFor {
    /// Whether any is, of all that the server knows.
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether this one is.
    pub fn has(self, class: EventClass) -> bool {
        self.0 & class.raw() != 0
    }
}

/// The name of the event that we raise just now, which tells it from those of
/// others: no other has its name at this address. Null: none.
static RAISING: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

impl Db<'_> {
    /// Raises a key event in this database: a keyspace notification. The
    /// subscription of [`Ctx::subscribe_to_keys`] does not get it.
    pub fn raise_key_event(self, class: EventClass, name: &'static CStr, key: &Str) {
        let here = self.enter();
        // Another module that hears it may call a command of ours, which raises
        // others in between.
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
    /// Has `H` called whenever this happens, instead of any that was before:
    /// the server knows one for each event. False when it cannot.
    pub fn subscribe<H: OnEvent>(self, event: Event) -> bool {
        // SAFETY: the context lives as long as `self`. The server ends the subscriptions of a
        // module that it unloads, and so never calls what is gone.
        let status = unsafe {
            api!(RedisModule_SubscribeToServerEvent)(self.raw(), event.raw(), Some(happened::<H>))
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Has nobody called when this happens. Not to be used while the server tells
    /// of any event: it goes through the list from which this one is taken.
    pub fn unsubscribe(self, event: Event) {
        // SAFETY: the context lives as long as `self`. No callback ends a subscription.
        unsafe { api!(RedisModule_SubscribeToServerEvent)(self.raw(), event.raw(), None) };
    }

    /// Has `H` called when a command of somebody else's deletes, renames,
    /// moves, expires or otherwise changes a key as a whole, and when the
    /// server expires or evicts one. Changes inside a value are not told, for
    /// that would cost every command on the server.
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

    /// The classes of key events that `notify-keyspace-events` asks for. Reads one
    /// variable of the server's.
    pub fn asked_for(self) -> AskedFor {
        // SAFETY: the function has no arguments.
        AskedFor(unsafe { raw::RedisModule_GetNotifyKeyspaceEvents.map_or(0, |tell| tell()) })
    }

    /// A number from a section of INFO; None when it is not there.
    pub fn info_number(self, section: &CStr, field: &CStr) -> Option<u64> {
        let [value] = self.info_fields(section, [field]);
        std::str::from_utf8(value?.bytes()).ok()?.parse().ok()
    }

    /// Fields of a section of INFO; None in the place of one that is not there.
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

/// What an event means to us; None: nothing.
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
            leave_after_move(ctx, name);
            if let Err(panic) = noted {
                guard::resume(Some(Box::new(panic)));
            }
        }
    });
    raw::REDISMODULE_OK as c_int
}

/// The database that the key of a running MOVE came from.
static MOVED_FROM: AtomicI32 = AtomicI32::new(0);

/// Valkey from 8.1 on, until valkey-io/valkey#4024 was merged, selects the database of an event
/// for the client itself and leaves it there: after MOVE the client would go on
/// in the other database, and a replica would apply what follows there. So it
/// is selected back; elsewhere it is the context's own database that is.
fn leave_after_move(ctx: Ctx<'_>, name: &[u8]) {
    match name {
        b"move_from" => MOVED_FROM.store(ctx.db().number(), Ordering::Relaxed),
        b"move_to" => {
            ctx.select(MOVED_FROM.load(Ordering::Relaxed));
        }
        _ => {}
    }
}
