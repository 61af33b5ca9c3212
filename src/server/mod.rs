//! What the module and its server have to do with each other beside commands:
//! blocked clients, the clock, events. There is one [`Server`], and whatever
//! happens enters the engine through [`run`].

mod blocked;
mod events;
mod eviction;
mod info;
mod listeners;
mod settings;
mod timer;
mod version;

pub use blocked::acquire;
pub use settings::load_settings;
pub use version::check;

use crate::core::WaiterId;
use crate::engine::{Answer, Change, Engine, Error, Moment, Settings};
use crate::ffi::{drop_probes, Alarm, Blocked, BlockedId, Ctx, MainThread, Reply};
use crate::store::{self, KeyEvent, Listeners};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The engine, and what connects it with the server.
struct Server {
    engine: Engine,
    alarm: Alarm,
    /// Whether it hears of changed keys.
    follows_keys: bool,
    /// Whether it hears of the event loop for good.
    follows_loop: bool,
    /// Whether it hears of it for now, to do what is due.
    listens: bool,
    /// When something is to be done, at the latest, or the clocks are to be
    /// looked at.
    armed: Option<Moment>,
    /// Whether that is now.
    due: bool,
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
static INBOX_HAS_CHANGES: AtomicBool = AtomicBool::new(false);

/// Starts to follow what happens to the server. The last step of a load: when it
/// fails, nothing of it is left.
pub fn start(ctx: Ctx<'_>, settings: Settings) -> Result<(), String> {
    let engine = Engine::new(settings);
    let alarm = Alarm::new::<timer::Wakes>(ctx)?;
    let (clients, waiters) = (HashMap::new(), HashMap::new());
    let mut server = Server {
        engine,
        alarm,
        follows_keys: false,
        follows_loop: false,
        listens: false,
        armed: None,
        due: false,
        clients,
        waiters,
    };
    // A module may be loaded into a server that has locks already.
    server.engine.start_sweep();
    server.wake_soon();
    SERVER.replace(Some(server));
    eviction::detect(ctx);
    info::write(ctx);
    events::follow(ctx).inspect_err(|_| {
        events::unfollow(ctx);
        SERVER.take();
    })
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
    INBOX.take();
    store::loop_is_done(ctx);
    store::stop();
    drop_probes();
    Ok(())
}

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
fn with_server<R>(
    ctx: Ctx<'_>,
    work: impl FnOnce(&mut Server) -> Result<R, Error>,
) -> Result<R, Error> {
    let result = {
        let mut server = SERVER.try_borrow_mut().map_err(|_| Error::Busy)?;
        let server = server.as_mut().ok_or(Error::Stopped)?;
        server.read_inbox();
        server.engine.begin_work();
        let result = work(server);
        server.finish(ctx);
        result
    };
    let events = store::take_key_events();
    if !events.is_empty() {
        raise(ctx, events);
    }
    result
}

/// Raises the key events of what was done. Other modules may hear them, and do
/// what they like: so only when all is done, and nothing is locked.
fn raise(ctx: Ctx<'_>, events: Vec<KeyEvent>) {
    for KeyEvent { db, key, class, name } in events {
        ctx.in_db(db).raise_key_event(class, name, &key);
    }
}

impl Server {
    fn read_inbox(&mut self) {
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            INBOX_HAS_CHANGES.store(false, Ordering::Relaxed);
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
        if INBOX_HAS_CHANGES.load(Ordering::Relaxed) {
            self.wake_soon();
        }
        // In a cluster locks may arrive with their slot.
        if !self.follows_keys && (self.engine.remembers_locks() || store::is_cluster()) {
            events::follow_keys(ctx);
            self.follows_keys = true;
        }
        if !self.follows_loop && self.follows_keys && store::listeners() == Listeners::Replicas {
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
}
