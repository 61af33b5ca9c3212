//! The module API as the rest of the crate wants it: small safe wrappers over
//! what `redis-module` lacks (binary-safe hash fields, absolute expiry, keys
//! that signal only real changes). The only folder with unsafe code. It knows
//! no rule of the lock.
//!
//! Two facts carry most SAFETY comments below:
//! - *main thread*: the server calls a module's commands and callbacks on its
//!   main thread, one at a time, and a [`Ctx`] cannot leave it (it is neither
//!   `Send` nor `Sync`).
//! - *lifetime*: a [`Ctx`] lives only inside the callback that got it, and
//!   what borrows from it cannot outlive that.

mod access;
mod alarm;
mod alloc;
mod block;
mod cluster;
mod command;
mod config;
mod ctx;
mod db;
mod event;
mod guard;
mod info;
mod key;
mod main_thread;
mod probe;
mod recent;
mod reply;
mod scan;
mod string;
mod sweep;

pub use alarm::{Alarm, OnAlarm};
pub use alloc::ServerAlloc;
pub use block::{Blocked, BlockedId, OnBlocked};
pub use cluster::Tree;
pub use command::{Arg, ArgKind, CommandDocs, KeyUse, Run};
pub use config::{ConfigKind, OnConfig};
pub use ctx::{Ctx, Version};
pub use db::{Db, Propagate};
pub use event::{AskedFor, Event, EventClass, Happened, OnEvent, OnKeyEvent};
pub use guard::log_panics;
pub use info::{Info, OnInfo};
pub use key::{Access, Key, Kind};
pub use main_thread::MainThread;
pub use probe::{drop_probes, Refusal};
pub use recent::Recent;
pub use reply::Reply;
pub use string::{Str, Text};
pub use sweep::Sweep;

/// The functions of the module API are pointers that loading fills in, before
/// any other code of ours runs. One that this server lacks ends as a panic,
/// which [`guard`] makes an error reply; what may lack is asked for first.
/// Reading such a pointer is unsafe to the compiler: use it in an unsafe block.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(function) => function,
            None => $crate::ffi::guard::missing(stringify!($name)),
        }
    };
}
use api;
