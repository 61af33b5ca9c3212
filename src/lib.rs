//! Distributed reentrant read/write locks as native commands of a Redis or
//! Valkey server. See `README.md` for what they do and `ARCHITECTURE.md` for
//! how this crate is built.
//!
//! This file is the entry: it registers everything and does nothing else.

mod command;
mod core;
mod engine;
mod ffi;
mod server;
mod store;

use ffi::{Ctx, ServerAlloc};
use redis_module::{redis_module, Context, RedisString, Status};

/// The module's version as the server shows it: 10000 · major + 100 · minor + patch.
const VERSION: i32 = 100;

fn load(context: &Context, args: &[RedisString]) -> Status {
    match try_load(context, args) {
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
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_slice()).collect();
    ffi::log_panics();
    let settings = server::load_settings(ctx, &args)?;
    store::init(ctx);
    server::start(ctx, settings)?;
    command::register(ctx)
}

fn unload(_: &Context) -> Status {
    server::stop();
    Status::Ok
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
