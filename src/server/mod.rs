//! The connection between the engine and the server, beside the commands: blocked clients, the
//! timer, events, settings, INFO.

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

/// Creates the engine and subscribes to the server's events. This is the last step of a load. If
/// it fails, it undoes its own work.
pub fn start(ctx: Ctx<'_>, settings: Settings) -> Result<(), String> {
    let engine = Engine::new(settings);
    let timer = Timer::new::<timer::DueTimer>(ctx)?;
    let (clients, waiters) = (HashMap::new(), HashMap::new());
    let mut server = Server {
        engine,
        timer,
        follows_keys: false,
        follows_loop: false,
        follows_loop_for_now: false,
        armed: None,
        due: false,
        clients,
        waiters,
        subscribe: events::SUBSCRIBE,
    };
    // The server may have locks already.
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

/// Stops the module, which is about to be unloaded. It fails if the module must not be unloaded;
/// the error says why. The server itself refuses to unload a module with blocked clients.
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
