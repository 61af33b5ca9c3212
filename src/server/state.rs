//! The engine, and what connects it with the server. Whatever happens enters the engine
//! through [`run`].

use crate::core::WaiterId;
use crate::engine::{Answer, Change, Engine, Error, Moment};
use crate::ffi::{guarded, Blocked, BlockedId, Ctx, MainThread, Reply, Timer};
use crate::store::{self, KeyEvent, Listeners};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The engine, and what connects it with the server.
pub(super) struct Server {
    pub engine: Engine,
    pub timer: Timer,
    /// Whether it hears of changed keys.
    pub follows_keys: bool,
    /// Whether it hears of the event loop for good.
    pub follows_loop: bool,
    /// Whether it hears of it for now, to do what is due.
    pub listens: bool,
    /// When something is to be done, at the latest, or the clocks are to be
    /// looked at.
    pub armed: Option<Moment>,
    /// Whether that is now.
    pub due: bool,
    pub clients: HashMap<WaiterId, Client>,
    pub waiters: HashMap<BlockedId, WaiterId>,
    /// How to hear of more, once it matters.
    pub subscribe: Subscribe,
}

/// How to hear of more events. Each costs something every time, so they are asked for late.
#[derive(Clone, Copy)]
pub(super) struct Subscribe {
    /// To what happens to keys.
    pub keys: fn(Ctx<'_>),
    /// To the turns of the event loop. False: the server does not tell of them.
    pub event_loop: fn(Ctx<'_>) -> bool,
}

/// A client that is blocked, and how its answer becomes a reply.
pub(super) struct Client {
    pub blocked: Blocked,
    pub render: fn(Answer) -> Reply,
}

/// Borrowed while it works; what happens meanwhile comes into the [`INBOX`].
pub(super) static SERVER: MainThread<RefCell<Option<Server>>> = MainThread::new(RefCell::new(None));

/// What happened and is not yet noted: key events come in the middle of
/// anything, also of the engine's own work.
pub(super) static INBOX: MainThread<RefCell<VecDeque<Change>>> =
    MainThread::new(RefCell::new(VecDeque::new()));

/// Whether there is anything in it.
pub(super) static INBOX_HAS_CHANGES: AtomicBool = AtomicBool::new(false);

/// Runs a use case, with all that has happened noted before, and all that
/// follows from it done after.
pub fn run<R>(
    ctx: Ctx<'_>,
    work: impl FnOnce(&mut Engine) -> Result<R, Error>,
) -> Result<R, Error> {
    with_server(ctx, |server| work(&mut server.engine))
}

/// The same, for work that needs more than the engine, such as blocking the
/// client. It belongs into `work`: answers are sent and key events are raised
/// after it, and a module that hears such an event may free the lock at once.
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
        // The work is done, and its client waits or will be told: a panic from here on must
        // not become an error reply.
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

/// How long after a panic the next try is, in ms: if that panics too, the log does not
/// fill up.
const AFTER_PANIC: u64 = 100;

/// Notes that a panic may have left any lock half changed. The next command, or the timer,
/// does the rest: the server may be in the middle of anything.
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

/// Raises the key events of what was done. Other modules may hear them, and do
/// what they like: so only when all is done, and nothing is locked.
fn raise(ctx: Ctx<'_>, events: Vec<KeyEvent>) {
    for KeyEvent { db, key, class, name } in events {
        ctx.in_db(db).raise_key_event(class, name, &key);
    }
}

impl Server {
    pub fn read_inbox(&mut self) {
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            if PANICKED.swap(false, Ordering::Relaxed) {
                self.match_clients();
            }
            let first = || INBOX.borrow_mut().pop_front();
            while let Some(change) = first() {
                self.engine.note(change);
            }
            INBOX_HAS_CHANGES.store(false, Ordering::Relaxed);
        }
    }

    /// Sends the answers and sets the timer.
    pub fn finish(&mut self, ctx: Ctx<'_>) {
        if self.engine.has_answers() {
            self.send_answers();
        }
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            self.wake_soon();
        }
        // In a cluster locks may arrive with their slot.
        if !self.follows_keys && (self.engine.remembers_locks() || store::is_cluster()) {
            (self.subscribe.keys)(ctx);
            self.follows_keys = true;
        }
        if !self.follows_loop && self.follows_keys && store::listeners() == Listeners::Replicas {
            // Without it messages are handed on at once.
            let _ = (self.subscribe.event_loop)(ctx);
            self.follows_loop = true;
        }
        self.arm(ctx);
    }

    fn send_answers(&mut self) {
        for (id, answer) in self.engine.take_answers() {
            if let Some(Client { blocked, render }) = self.clients.remove(&id) {
                self.waiters.remove(&blocked.id());
                blocked.answer(id, render(answer));
            } else {
                self.engine.take_back(id);
            }
        }
    }
}
