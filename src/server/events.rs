//! What happens to the server and to its keys.

use super::state::{Server, Subscribe, INBOX, INBOX_HAS_CHANGES, SERVER};
use super::{eviction, listeners, timer};
use crate::engine::Change;
use crate::ffi::{Ctx, Event, Happened, MainThread, OnEvent, OnKeyEvent};
use crate::store;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this server is a primary. Only a primary ends leases and grants.
static PRIMARY: AtomicBool = AtomicBool::new(true);

/// What is followed from the start on.
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

/// Whether this server is loading a file.
static LOADS: AtomicBool = AtomicBool::new(false);

/// The key that a running RENAME or MOVE takes away, if it concerns the engine: the
/// server tells of both of its ends one after the other.
static TAKEN_FROM: MainThread<RefCell<Option<Key>>> = MainThread::new(RefCell::new(None));

/// A key: its database and its name.
type Key = (i32, Vec<u8>);

/// Starts to follow.
pub(super) fn follow(ctx: Ctx<'_>) -> Result<(), String> {
    if let Some(event) = FOLLOWED.into_iter().find(|event| !ctx.subscribe::<Events>(*event)) {
        return Err(format!("the server does not tell of {event:?}"));
    }
    PRIMARY.store(ctx.situation().primary, Ordering::Relaxed);
    listeners::detect(ctx);
    Ok(())
}

/// Follows nothing of it any more. A server that unloads a module does so by
/// itself; Redis 7.0 does not when a load fails.
pub(super) fn unfollow(ctx: Ctx<'_>) {
    FOLLOWED.into_iter().for_each(|event| ctx.unsubscribe(event));
}

/// Follows what happens to keys, from the first lock on: each DEL and EXPIRE on
/// the server has to pay for it. In a cluster from the start on.
fn follow_keys(ctx: Ctx<'_>) {
    if !ctx.subscribe_to_keys::<Events>() {
        ctx.warn("rwlock: bug: the server does not tell of changed keys");
    }
}

/// What the server is asked to tell of later.
pub(super) const SUBSCRIBE: Subscribe =
    Subscribe { keys: follow_keys, event_loop: |ctx| ctx.subscribe::<Events>(Event::Loop) };

struct Events;

impl OnEvent for Events {
    fn on_event(ctx: Ctx<'_>, happened: Happened) {
        match happened {
            Happened::Role { primary } => {
                listeners::detect(ctx);
                PRIMARY.store(primary, Ordering::Relaxed);
                if let Some(server) = SERVER.borrow_mut().as_mut() {
                    server.engine.retire();
                    // Who still waits at a replica is told so.
                    server.wake_soon();
                }
                if primary {
                    put(Change::Everything);
                }
            }
            // What a reload empties comes back: see `Loads`. So nobody notes it before
            // the next command.
            Happened::Flushed(db) if !LOADS.load(Ordering::Relaxed) => {
                defer(Change::Flushed(db));
            }
            Happened::Flushed(_) => {}
            Happened::Swapped(one, other) => put(Change::Swapped(one, other)),
            Happened::Disconnected(client) => {
                let concerned = match SERVER.try_borrow_mut() {
                    Ok(server) => server.as_ref().is_some_and(|s| s.engine.has_session(client)),
                    Err(_) => true,
                };
                if concerned {
                    put(Change::Disconnected(client));
                }
            }
            // The server empties itself before it loads, or when it has begun to: the
            // keys that come are what counts, not that they were gone meanwhile.
            Happened::Loads => {
                LOADS.store(true, Ordering::Relaxed);
                INBOX.borrow_mut().retain(|change| !matches!(change, Change::Flushed(_)));
            }
            Happened::Loaded => {
                LOADS.store(false, Ordering::Relaxed);
                listeners::detect(ctx);
                put(Change::Everything);
            }
            Happened::ListenersChanged => listeners::detect(ctx),
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
        if !PRIMARY.load(Ordering::Relaxed) {
            return;
        }
        let db = ctx.db().number();
        let (concerned, is_working) = match SERVER.try_borrow_mut() {
            Ok(mut server) => {
                let concerned = |server: &mut Server| {
                    // What is noted already can make this key one of a lock's.
                    server.read_inbox();
                    server.engine.concerns(db, key)
                };
                (server.as_mut().is_some_and(concerned), false)
            }
            // In the middle of the engine's own work.
            Err(_) => (true, true),
        };
        let goes = matches!(name, b"rename_from" | b"move_from");
        let comes = matches!(name, b"rename_to" | b"move_to");
        // Another module may write in between.
        let from = if comes { TAKEN_FROM.take() } else { None };
        let arrives = name == b"restore" && store::is_cluster();
        if goes {
            TAKEN_FROM.replace(concerned.then(|| (db, key.to_vec())));
            return;
        }
        if !concerned && !arrives && from.is_none() {
            return;
        }
        let key = key.to_vec();
        match (name, from) {
            _ if arrives => put(Change::Arrived(db, key)),
            (_, Some(from)) => put(Change::Moved { from, to: (db, key) }),
            (b"expired", _) if is_working => put(Change::MetLapsed(db, key)),
            (b"expired", _) => put(Change::Lapsed(db, key)),
            (b"expire" | b"persist", _) => put(Change::Expiry(db, key)),
            _ => put(Change::Replaced(db, key)),
        }
    }
}

/// Leaves a change in the [`INBOX`], which is read before anything else is done.
fn defer(change: Change) {
    INBOX.borrow_mut().push_back(change);
    INBOX_HAS_CHANGES.store(true, Ordering::Relaxed);
    if let Ok(mut server) = SERVER.try_borrow_mut() {
        if let Some(server) = server.as_mut() {
            server.wake_soon();
        }
    }
}

/// Notes a change, and has what follows from it done soon. In the middle of the
/// engine's own work it comes into the [`INBOX`], which is read before the next.
pub(super) fn put(change: Change) {
    match SERVER.try_borrow_mut() {
        Ok(mut server) => {
            if let Some(server) = server.as_mut() {
                server.read_inbox();
                server.engine.note(change);
                server.wake_soon();
            }
        }
        Err(_) => {
            INBOX.borrow_mut().push_back(change);
            INBOX_HAS_CHANGES.store(true, Ordering::Relaxed);
        }
    }
}
