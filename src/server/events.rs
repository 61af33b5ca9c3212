//! Events of the server and of its keys.

use super::state::{Server, Subscribe, INBOX, INBOX_HAS_CHANGES, SERVER};
use super::{eviction, listeners, timer};
use crate::engine::Change;
use crate::ffi::{Ctx, Event, Happened, MainThread, OnEvent, OnKeyEvent};
use crate::store;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this server is a primary. Only a primary ends leases and grants holds.
static IS_PRIMARY: AtomicBool = AtomicBool::new(true);

/// The events that the module subscribes to on every server when it is loaded.
const FOLLOWED: [Event; 9] = [
    Event::RoleChanged,
    Event::ReplicaChanged,
    Event::ForkChild,
    Event::Configured,
    Event::Loading,
    Event::Tick,
    Event::Flush,
    Event::SwapDb,
    Event::ClientChange,
];

/// The events that the module subscribes to on this server.
fn followed(ctx: Ctx<'_>) -> impl Iterator<Item = Event> {
    FOLLOWED.into_iter().chain(ctx.moves_slots_atomically().then_some(Event::SlotMigration))
}

/// Whether this server is loading its data.
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// The source of a running RENAME or MOVE, if the engine follows that key. The server sends two
/// events one after the other: first for the source, then for the target.
static MOVED_FROM: MainThread<RefCell<Option<Key>>> = MainThread::new(RefCell::new(None));

/// The database and the name of a key.
type Key = (i32, Vec<u8>);

/// Subscribes to the events of the server.
pub(super) fn follow(ctx: Ctx<'_>) -> Result<(), String> {
    if let Some(event) = followed(ctx).find(|event| !ctx.subscribe::<Events>(*event)) {
        return Err(format!("the server does not tell of {event:?}"));
    }
    IS_PRIMARY.store(ctx.situation().primary, Ordering::Relaxed);
    listeners::detect(ctx);
    Ok(())
}

/// Ends the subscriptions to the events of the server. A server does this itself when it
/// unloads a module. But Redis 7.0 does not when the load of a module fails.
pub(super) fn unfollow(ctx: Ctx<'_>) {
    followed(ctx).for_each(|event| ctx.unsubscribe(event));
}

/// Subscribes to the events of keys. They cost time at each DEL and EXPIRE on the server, so the
/// module subscribes when it gets its first lock; in a cluster from the start.
fn follow_keys(ctx: Ctx<'_>) {
    if !ctx.subscribe_to_keys::<Events>() {
        ctx.warn("rwlock: bug: the server does not tell of changed keys");
    }
}

/// The subscriptions that the module makes when it needs them.
pub(super) const SUBSCRIBE: Subscribe =
    Subscribe { keys: follow_keys, event_loop: |ctx| ctx.subscribe::<Events>(Event::Loop) };

/// The callbacks of all events.
struct Events;

impl OnEvent for Events {
    fn on_event(ctx: Ctx<'_>, happened: Happened) {
        match happened {
            Happened::Role { primary } => {
                listeners::detect(ctx);
                IS_PRIMARY.store(primary, Ordering::Relaxed);
                if let Some(server) = SERVER.borrow_mut().as_mut() {
                    server.engine.retire();
                    // At a replica the engine then answers the waiters with UNBLOCKED.
                    server.wake_soon();
                }
                if primary {
                    note(Change::Everything);
                }
            }
            // A server that reloads its data flushes first, and the keys come back. So a flush
            // only goes into the inbox, and `Loads`, which follows at once, removes it from there.
            Happened::Flushed(db) if !IS_LOADING.load(Ordering::Relaxed) => {
                put_in_inbox(Change::Flushed(db));
                wake_soon();
            }
            Happened::Flushed(_) => {}
            Happened::Swapped(one, other) => note(Change::Swapped(one, other)),
            Happened::Disconnected(client) => {
                let concerned = match SERVER.try_borrow_mut() {
                    Ok(server) => server.as_ref().is_some_and(|s| s.engine.has_session(client)),
                    Err(_) => true,
                };
                if concerned {
                    note(Change::Disconnected(client));
                }
            }
            // A server flushes all data before the load or when the load begins. Only the keys
            // after the load count, so such a flush is no change.
            Happened::Loads => {
                IS_LOADING.store(true, Ordering::Relaxed);
                INBOX.borrow_mut().retain(|change| !matches!(change, Change::Flushed(_)));
            }
            Happened::Loaded => {
                IS_LOADING.store(false, Ordering::Relaxed);
                listeners::detect(ctx);
                note(Change::Everything);
            }
            Happened::ListenersChanged => listeners::detect(ctx),
            // A replica does nothing for its locks, wherever their slots are.
            Happened::SlotsArrived | Happened::SlotsLeft if !IS_PRIMARY.load(Ordering::Relaxed) => {
            }
            Happened::SlotsArrived => note(Change::SlotsArrived),
            Happened::SlotsLeft => note(Change::SlotsLeft),
            Happened::Awake => timer::after_sleep(ctx),
            Happened::Done => timer::before_sleep(ctx),
            Happened::Tick => {
                listeners::check_backlog(ctx);
                if let Ok(mut server) = SERVER.try_borrow_mut() {
                    if let Some(server) = server.as_mut() {
                        server.tick(ctx);
                    }
                }
            }
            Happened::Configured => {
                listeners::detect(ctx);
                eviction::detect(ctx);
            }
        }
    }
}

impl OnKeyEvent for Events {
    fn on_key_event(ctx: Ctx<'_>, name: &[u8], key: &[u8]) {
        if !IS_PRIMARY.load(Ordering::Relaxed) {
            return;
        }
        let db = ctx.db().number();
        let (concerned, is_working) = match SERVER.try_borrow_mut() {
            Ok(mut server) => {
                let concerned = |server: &mut Server| {
                    // A change in the inbox may be the reason why the engine follows this key.
                    server.read_inbox();
                    server.engine.concerns(db, key)
                };
                (server.as_mut().is_some_and(concerned), false)
            }
            // The engine is at work. It reads this event from the inbox later.
            Err(_) => (true, true),
        };
        let is_source = matches!(name, b"rename_from" | b"move_from");
        let is_target = matches!(name, b"rename_to" | b"move_to");
        // Any other event in between (another module may write a key) changes nothing here.
        let from = if is_target { MOVED_FROM.take() } else { None };
        let is_arrival = name == b"restore" && store::is_cluster();
        if is_source {
            MOVED_FROM.replace(concerned.then(|| (db, key.to_vec())));
            return;
        }
        if !concerned && !is_arrival && from.is_none() {
            return;
        }
        let key = key.to_vec();
        match (name, from) {
            _ if is_arrival => note(Change::Arrived(db, key)),
            (_, Some(from)) => note(Change::Moved { from, to: (db, key) }),
            (b"expired", _) if is_working => note(Change::MetLapsed(db, key)),
            (b"expired", _) => note(Change::Lapsed(db, key)),
            (b"expire" | b"persist", _) => note(Change::Expiry(db, key)),
            _ => note(Change::Replaced(db, key)),
        }
    }
}

/// Puts a change into the [`INBOX`]. The module reads it before it does anything else.
fn put_in_inbox(change: Change) {
    INBOX.borrow_mut().push_back(change);
    INBOX_HAS_CHANGES.store(true, Ordering::Relaxed);
}

/// Has what is due done soon, unless the engine is at work: then `Server::finish` does it.
fn wake_soon() {
    if let Ok(mut server) = SERVER.try_borrow_mut() {
        if let Some(server) = server.as_mut() {
            server.wake_soon();
        }
    }
}

/// Has the engine note a change, and act on it soon. While the engine is at work, the change
/// goes into the [`INBOX`] instead.
pub(super) fn note(change: Change) {
    match SERVER.try_borrow_mut() {
        Ok(mut server) => {
            if let Some(server) = server.as_mut() {
                server.read_inbox();
                server.engine.note(change);
                server.wake_soon();
            }
        }
        Err(_) => put_in_inbox(change),
    }
}
