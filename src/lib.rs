//! Distributed reentrant read/write locks as native commands of a Redis or
//! Valkey server. See `README.md` for what they do and `ARCHITECTURE.md` for
//! how this crate is built.
//!
//! This file is the entry: it registers everything and does nothing else.

mod command;
mod core;
mod engine;
mod ffi;
mod planted;
mod server;
mod store;

use ffi::{guarded, Ctx, ServerAlloc};
use redis_module::{redis_module, Context, RedisString, Status};

/// The version in MODULE LIST: 10000 · major + 100 · minor + patch, from `Cargo.toml`.
const VERSION: i32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// The number that decimal digits spell.
const fn number(digits: &str) -> i32 {
    let (mut rest, mut number) = (digits.as_bytes(), 0);
    while let [digit, tail @ ..] = rest {
        number = 10 * number + (*digit - b'0') as i32;
        rest = tail;
    }
    number
}

fn load(context: &Context, args: &[RedisString]) -> Status {
    match guarded(|| try_load(context, args)).and_then(|loaded| loaded) {
        Ok(()) => Status::Ok,
        Err(reason) => {
            context.log_warning(&format!("rwlock: not loaded: {reason}"));
            Status::Err
        }
    }
}

fn try_load(context: &Context, args: &[RedisString]) -> Result<(), String> {
    let ctx = Ctx::of_load(context).ok_or("the server gave no context")?;
    server::check(ctx)?;
    ffi::watch_panics::<server::Recovery>();
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_slice()).collect();
    let settings = server::load_settings(ctx, &args)?;
    #[cfg(feature = "planted-bugs")]
    plant_bug()?;
    store::init(ctx)?;
    // When a load fails, the server removes the module's code. It also removes the module's
    // commands and settings, but not its subscriptions to events: these would call code that
    // is gone. So `server::start`, which subscribes, comes last and undoes its work on failure.
    command::register(ctx)?;
    server::start(ctx, settings)
}

/// Plants the bug that the environment names (`planted.rs`).
#[cfg(feature = "planted-bugs")]
fn plant_bug() -> Result<(), String> {
    match std::env::var("RWLOCK_PLANTED_BUG") {
        Ok(name) if !planted::plant(&name) => Err(format!("there is no bug {name}")),
        _ => Ok(()),
    }
}

fn unload(context: &Context) -> Status {
    let stopped = guarded(|| Ctx::of_load(context).map_or(Ok(()), server::stop));
    match stopped.and_then(|stopped| stopped) {
        Ok(()) => Status::Ok,
        Err(reason) => {
            context.log_warning(&format!("rwlock: not unloaded: {reason}"));
            Status::Err
        }
    }
}

/// What the fuzz targets use beside the commands (`fuzz/`). Only `cargo fuzz` sets this `cfg`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::core::tests::waiting::{keeps_the_rules, Request, Step, LOCKS};
    pub use crate::core::{Kind, Policy, Want, Which};
    pub use crate::store::layout;
}

redis_module! {
    name: "rwlock",
    version: VERSION,
    allocator: (ServerAlloc, ServerAlloc),
    data_types: [],
    init: load,
    deinit: unload,
    commands: [],
}
