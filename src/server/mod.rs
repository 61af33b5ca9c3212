//! What the module and its server have to do with each other beside commands:
//! blocked clients, the clock, events. There is one [`Server`], and whatever
//! happens enters the engine through [`run`].

mod audience;
mod blocked;
mod events;
mod eviction;
mod info;
mod settings;
mod version;

pub use blocked::acquire;
pub use settings::load_settings;
pub use version::check;

use crate::core::{Millis, WaiterId};
use crate::engine::{Answer, Change, Engine, Notice, Settings};
use crate::ffi::{Alarm, Blocked, BlockedId, Ctx, MainThread, OnAlarm, Reply, Text};
use crate::store::{self, Audience};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The engine, and what connects it with the server.
struct Server {
    engine: Engine,
    alarm: Alarm,
    /// Whether it hears of changed keys.
    follows_keys: bool,
    /// Whether it hears of the event loop.
    follows_loop: bool,
    /// When the alarm is set to ring.
    armed: Option<Millis>,
    clients: HashMap<WaiterId, Client>,
    waiters: HashMap<BlockedId, WaiterId>,
}

/// A client that is blocked, and how its answer becomes a reply.
struct Client {
    blocked: Blocked,
    render: fn(Answer) -> Reply,
}

/// Borrowed while it works; what happens meanwhile comes into the [`INBOX`].
static SERVER: MainThread<RefCell<Option<Server>>> = MainThread::new(RefCell::new(None));

/// What happened and is not yet noted: key events come in the middle of
/// anything, also of the engine's own work.
static INBOX: MainThread<RefCell<Vec<Change>>> = MainThread::new(RefCell::new(Vec::new()));

/// Whether there is anything in it.
static HAS_NEWS: AtomicBool = AtomicBool::new(false);

/// Starts to follow what happens to the server.
pub fn start(ctx: Ctx<'_>, settings: Settings) -> Result<(), String> {
    let engine = Engine::new(settings);
    let alarm = Alarm::new::<Rings>(ctx)?;
    let (clients, waiters) = (HashMap::new(), HashMap::new());
    let mut server = Server {
        engine,
        alarm,
        follows_keys: false,
        follows_loop: false,
        armed: None,
        clients,
        waiters,
    };
    // A module may be loaded into a server that has locks already.
    server.engine.start_sweep();
    // Not at once: a server that unloads a module right after it was loaded, as
    // MODULE LOADEX does for a setting that there is not, must find no timer.
    server.alarm.set::<Rings>(1);
    server.armed = Some(0);
    SERVER.replace(Some(server));
    eviction::look(ctx);
    info::write(ctx);
    events::follow(ctx)
}

/// Stops all of it, before the module is unloaded. The server does not unload
/// one that has blocked clients. Why else it is not to be is said in the error.
pub fn stop(ctx: Ctx<'_>) -> Result<(), String> {
    if ctx.acl_names_commands() {
        return Err("an ACL rule names one of its commands, and the server would crash: \
                    take it out (+@rwlock may stay)"
            .into());
    }
    SERVER.take();
    store::loop_is_done(ctx);
    Ok(())
}

/// Runs a use case, with all that has happened noted before, and all that
/// follows from it done after.
pub fn run<R>(ctx: Ctx<'_>, work: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let (result, notices) = {
        let mut server = SERVER.borrow_mut();
        let server = server.as_mut()?;
        server.read_inbox();
        let result = work(&mut server.engine);
        server.finish(ctx);
        (result, server.engine.take_notices())
    };
    if !notices.is_empty() {
        raise(ctx, notices);
    }
    Some(result)
}

/// Raises the key events of what was done. Other modules may hear them, and do
/// what they like: so only when all is done, and nothing is locked.
fn raise(ctx: Ctx<'_>, notices: Vec<Notice>) {
    let db = ctx.db();
    for Notice { db, lock, what } in notices {
        ctx.select(db);
        ctx.raise_key_event(what.name(), &Text::new(&lock));
    }
    ctx.select(db);
}

impl Server {
    fn read_inbox(&mut self) {
        if HAS_NEWS.load(Ordering::Relaxed) {
            HAS_NEWS.store(false, Ordering::Relaxed);
            let changes = INBOX.take();
            for change in changes {
                self.engine.note(change);
            }
        }
    }

    /// Sends the answers and sets the alarm.
    fn finish(&mut self, ctx: Ctx<'_>) {
        if self.engine.has_answers() {
            self.send_answers();
        }
        if HAS_NEWS.load(Ordering::Relaxed) {
            self.hurry();
        }
        if !self.follows_keys && self.engine.remembers_locks() {
            events::follow_keys(ctx);
            self.follows_keys = true;
        }
        if !self.follows_loop && self.follows_keys && store::audience() == Audience::Replicas {
            events::follow_loop(ctx);
            self.follows_loop = true;
        }
        self.arm(ctx);
    }

    fn send_answers(&mut self) {
        for (id, answer) in self.engine.take_answers() {
            if let Some(Client { blocked, render }) = self.clients.remove(&id) {
                self.waiters.remove(&blocked.id());
                blocked.answer(id, render(answer));
            }
        }
    }

    fn arm(&mut self, ctx: Ctx<'_>) {
        let Some(at) = self.engine.next_alarm() else {
            return;
        };
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        // In the first ms in which its time is over, by the clock that goes on
        // while a script or a transaction runs.
        let delay = at.saturating_sub(ctx.clock()).saturating_add(1);
        self.alarm.set::<Rings>(u64::try_from(delay).unwrap_or(0));
        self.armed = Some(at);
    }

    /// Has the inbox read as soon as may be.
    fn hurry(&mut self) {
        self.alarm.set::<Rings>(0);
        self.armed = Some(0);
    }
}

/// What the alarm is for.
struct Rings;

impl OnAlarm for Rings {
    fn ring(ctx: Ctx<'_>) {
        if let Some(server) = SERVER.borrow_mut().as_mut() {
            server.armed = None;
        }
        run(ctx, |engine| engine.ring(ctx));
    }
}
