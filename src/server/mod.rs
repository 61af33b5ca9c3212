//! What the module and its server have to do with each other beside commands:
//! blocked clients, the clock, events.

mod blocked;
mod events;
mod eviction;
mod info;
mod listeners;
mod recovery;
mod settings;
mod state;
mod timer;
mod version;

pub use blocked::acquire;
pub use recovery::Recovery;
pub use settings::load_settings;
pub use state::run;
pub use version::check;

use crate::engine::{Engine, Settings};
use crate::ffi::{drop_probes, Ctx, Timer};
use crate::store;
use hashbrown::HashMap;
use state::{Server, INBOX, SERVER};

/// Starts to follow what happens to the server. The last step of a load: when it
/// fails, nothing of it is left.
pub fn start(ctx: Ctx<'_>, settings: Settings) -> Result<(), String> {
    let engine = Engine::new(settings);
    let timer = Timer::new::<timer::Wakes>(ctx)?;
    let (clients, waiters) = (HashMap::new(), HashMap::new());
    let mut server = Server {
        engine,
        timer,
        follows_keys: false,
        follows_loop: false,
        listens: false,
        armed: None,
        due: false,
        clients,
        waiters,
        subscribe: events::SUBSCRIBE,
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
