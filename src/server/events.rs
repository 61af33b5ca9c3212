//! What happens to the server and to its keys.

use super::{audience, eviction, HAS_NEWS, INBOX, SERVER};
use crate::engine::Change;
use crate::ffi::{Ctx, Event, Happened, OnEvent, OnKeyEvent};
use crate::store;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this server is a primary. Only a primary ends leases and grants.
static PRIMARY: AtomicBool = AtomicBool::new(true);

/// Starts to follow.
pub(super) fn follow(ctx: Ctx<'_>) -> Result<(), String> {
    let events = [
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
    if let Some(event) = events.into_iter().find(|event| !ctx.subscribe::<Events>(*event)) {
        return Err(format!("the server does not tell of {event:?}"));
    }
    PRIMARY.store(ctx.situation().primary, Ordering::Relaxed);
    audience::look(ctx);
    Ok(())
}

/// Follows what happens to keys, from the first lock on: each DEL and EXPIRE on
/// the server has to pay for it.
pub(super) fn follow_keys(ctx: Ctx<'_>) {
    if !ctx.subscribe_to_keys::<Events>() {
        ctx.warn("rwlock: bug: the server does not tell of changed keys");
    }
}

/// Follows the event loop, once there are locks and replicas: see
/// [`store::loop_is_done`].
pub(super) fn follow_loop(ctx: Ctx<'_>) {
    // Without it messages are handed on at once.
    let _ = ctx.subscribe::<Events>(Event::Loop);
}

struct Events;

impl OnEvent for Events {
    fn on_event(ctx: Ctx<'_>, happened: Happened) {
        match happened {
            Happened::Role { primary } => {
                audience::look(ctx);
                PRIMARY.store(primary, Ordering::Relaxed);
                if let Some(server) = SERVER.borrow_mut().as_mut() {
                    server.engine.retire();
                    // Who still waits at a replica is told so.
                    server.hurry();
                }
                if primary {
                    put(Change::Everything);
                }
            }
            Happened::Flushed(db) => put(Change::Flushed(db)),
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
            Happened::Loaded => {
                audience::look(ctx);
                put(Change::Everything);
            }
            Happened::AudienceChanged => audience::look(ctx),
            Happened::Awake => store::loop_awakes(),
            Happened::Done => store::loop_is_done(ctx),
            Happened::Tick => audience::look_again(ctx),
            Happened::Configured => {
                audience::look(ctx);
                eviction::look(ctx);
            }
        }
    }
}

impl OnKeyEvent for Events {
    fn on_key_event(ctx: Ctx<'_>, name: &[u8], key: &[u8]) {
        if !PRIMARY.load(Ordering::Relaxed) {
            return;
        }
        let db = ctx.db();
        let concerned = match SERVER.try_borrow_mut() {
            Ok(server) => server.as_ref().is_some_and(|server| server.engine.concerns(db, key)),
            // In the middle of the engine's own work.
            Err(_) => true,
        };
        if concerned {
            let key = key.to_vec();
            put(match name {
                b"expired" => Change::Lapsed(db, key),
                b"expire" | b"persist" => Change::Expiry(db, key),
                _ => Change::Replaced(db, key),
            });
        }
    }
}

/// Notes a change, and has it read soon.
pub(super) fn put(change: Change) {
    INBOX.borrow_mut().push(change);
    HAS_NEWS.store(true, Ordering::Relaxed);
    // While the engine works it reads the inbox when the next one comes by, and
    // the alarm sees to it that somebody does.
    if let Ok(mut server) = SERVER.try_borrow_mut() {
        if let Some(server) = server.as_mut() {
            server.hurry();
        }
    }
}
