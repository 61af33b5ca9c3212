//! The engine and its connection with the server. All work enters the engine through [`run`].

use crate::core::{give_room_back, WaiterId};
use crate::engine::{Answer, Change, Engine, Error, Moment};
use crate::ffi::{guarded, Blocked, BlockedId, Ctx, MainThread, Reply, Timer};
use crate::store::{self, KeyEvent, Listeners};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The engine and its connection with the server.
pub(super) struct Server {
    pub engine: Engine,
    /// The one timer of the module. It wakes the event loop.
    pub timer: Timer,
    /// Whether the module is subscribed to the events of keys.
    pub follows_keys: bool,
    /// Whether it is subscribed to the turns of the event loop for good, for announcements.
    pub follows_loop: bool,
    /// Whether it is subscribed to them until it has done what is due.
    pub follows_loop_for_now: bool,
    /// The moment for which the timer is set; None: it is not set. [`Moment::PAST`] while
    /// something is due: the timer keeps its time then.
    pub armed: Option<Moment>,
    /// Whether something is due now.
    pub due: bool,
    /// The blocked client of each waiter that has no answer yet.
    pub clients: HashMap<WaiterId, Client>,
    /// The waiter of each blocked client.
    pub waiters: HashMap<BlockedId, WaiterId>,
    /// How to subscribe to more events, once they matter.
    pub subscribe: Subscribe,
}

/// How to subscribe to more events. Each event costs time, so the module subscribes late.
#[derive(Clone, Copy)]
pub(super) struct Subscribe {
    /// Subscribes to the events of keys.
    pub keys: fn(Ctx<'_>),
    /// Subscribes to the turns of the event loop. False: the server refuses.
    pub event_loop: fn(Ctx<'_>) -> bool,
}

/// A blocked client, and the function that makes its reply from the answer.
pub(super) struct Client {
    pub blocked: Blocked,
    pub render: fn(Answer) -> Reply,
}

/// None: the module is not started. It is borrowed while the engine works. Changes that happen
/// meanwhile go into the [`INBOX`].
pub(super) static SERVER: MainThread<RefCell<Option<Server>>> = MainThread::new(RefCell::new(None));

/// Changes that the engine has not noted yet. An event can come while the engine works, and
/// cannot enter it then.
pub(super) static INBOX: MainThread<RefCell<VecDeque<Change>>> =
    MainThread::new(RefCell::new(VecDeque::new()));

/// For how many changes the inbox keeps room.
const INBOX_ROOM: usize = 16;

/// Whether the [`INBOX`] has changes.
pub(super) static INBOX_HAS_CHANGES: AtomicBool = AtomicBool::new(false);

/// Runs a use case of the engine. Before it the engine notes all changes in the inbox; after it
/// answers and key events are sent. Fails with [`Error::Busy`] while the engine works, and with
/// [`Error::Stopped`] when the module is stopped.
pub fn run<R>(
    ctx: Ctx<'_>,
    work: impl FnOnce(&mut Engine) -> Result<R, Error>,
) -> Result<R, Error> {
    with_server(ctx, |server| work(&mut server.engine))
}

/// Like [`run`], for work that also needs the blocked clients. A client has to be blocked inside
/// `work`. After `work` answers are sent and key events are raised, and another module may free
/// the lock in such an event.
pub(super) fn with_server<R>(
    ctx: Ctx<'_>,
    work: impl FnOnce(&mut Server) -> Result<R, Error>,
) -> Result<R, Error> {
    let (result, finished) = {
        let mut server = SERVER.try_borrow_mut().map_err(|_| Error::Busy)?;
        let server = server.as_mut().ok_or(Error::Stopped)?;
        server.read_inbox();
        server.engine.begin_work();
        let result = work(server);
        // The work is done, and its client waits or gets its reply. So a panic from here on
        // must not become an error reply.
        let finished = guarded(|| server.finish(ctx));
        (result, finished)
    };
    let events = store::take_key_events();
    let raised = match events.is_empty() {
        true => Ok(()),
        false => guarded(|| raise(ctx, events)),
    };
    if finished.and(raised).is_err() {
        note_panic();
    }
    result
}

/// Whether a panic has ended a callback, and the server has not recovered from it yet.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// How long after a panic the module tries again, in ms. If that panics too, the log does not
/// fill up.
const AFTER_PANIC: u64 = 100;

/// Notes that a panic may have left any lock half changed. The panic may come in the middle of
/// any work, so the next command or the timer repairs the state.
pub(super) fn note_panic() {
    PANICKED.store(true, Ordering::Relaxed);
    INBOX.borrow_mut().push_back(Change::Everything);
    INBOX_HAS_CHANGES.store(true, Ordering::Relaxed);
    if let Ok(mut server) = SERVER.try_borrow_mut() {
        if let Some(server) = server.as_mut() {
            server.wake_after(AFTER_PANIC);
        }
    }
}

/// Raises the key events of the changes that were made. Other modules may run any command in
/// them, so this comes last, when nothing is borrowed.
fn raise(ctx: Ctx<'_>, events: Vec<KeyEvent>) {
    for KeyEvent { db, key, class, name } in events {
        ctx.in_db(db).raise_key_event(class, name, &key);
    }
}

impl Server {
    /// Has the engine note the changes in the [`INBOX`], and recovers from a panic first.
    pub fn read_inbox(&mut self) {
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            if PANICKED.swap(false, Ordering::Relaxed) {
                self.match_clients();
            }
            let first = || INBOX.borrow_mut().pop_front();
            while let Some(change) = first() {
                self.engine.note(change);
            }
            INBOX.borrow_mut().shrink_to(INBOX_ROOM);
            INBOX_HAS_CHANGES.store(false, Ordering::Relaxed);
        }
    }

    /// Sends the answers, makes subscriptions that are needed now, and sets the timer.
    pub fn finish(&mut self, ctx: Ctx<'_>) {
        self.engine.end_released(ctx);
        if self.engine.has_answers() {
            self.send_answers();
        }
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            self.wake_soon();
        }
        // In a cluster locks can arrive with their slot, so their keys matter from the start.
        if !self.follows_keys && (self.engine.remembers_locks() || store::is_cluster()) {
            (self.subscribe.keys)(ctx);
            self.follows_keys = true;
        }
        if !self.follows_loop && self.follows_keys && store::listeners() == Listeners::Replicas {
            // If the server refuses, announcements are propagated at once instead.
            let _ = (self.subscribe.event_loop)(ctx);
            self.follows_loop = true;
        }
        self.arm(ctx);
    }

    /// Removes the blocked client of a waiter. The caller answers or dismisses it.
    pub fn remove_client(&mut self, id: WaiterId) -> Option<Client> {
        let client = self.clients.remove(&id)?;
        self.waiters.remove(&client.blocked.id());
        give_room_back(&mut self.clients);
        give_room_back(&mut self.waiters);
        Some(client)
    }

    fn send_answers(&mut self) {
        for (id, answer) in self.engine.take_answers() {
            if let Some(Client { blocked, render }) = self.remove_client(id) {
                blocked.answer(id, render(answer));
            } else {
                self.engine.take_back(id);
            }
        }
    }
}
