//! Small safe wrappers of the module API, for what `redis-module` lacks: binary-safe hash fields,
//! absolute expiry, keys that signal only real changes. This is the only folder with unsafe code.
//! It has no rules of the lock.
//!
//! What the SAFETY comments rely on:
//! - *Main thread*: the server calls a module's commands and callbacks on its main thread,
//!   one at a time. A [`Ctx`] cannot leave it, as it is neither `Send` nor `Sync`, and a
//!   [`MainThread`] checks it.
//! - *Lifetime*: the server lends a context for one callback. A [`Ctx`] and what borrows
//!   from it cannot outlive that.
//! - *Strings*: a [`Str`] is lent by an owner that keeps it alive, a [`Text`] has a
//!   reference of its own.
//! - *Callbacks*: a server that unloads a module forgets its callbacks first, and it unloads
//!   none that has blocked clients.
//!
//! Times are unix times or durations in ms, unless a comment gives another unit. A function that
//! some supported servers lack is used as `raw::RedisModule_…`, and a comment there says what
//! happens without it. All other functions are used through [`api`].

mod access;
mod alloc;
mod block;
mod call;
mod client;
mod cluster;
mod command;
mod config;
mod ctx;
mod db;
mod event;
mod guard;
mod info;
mod key;
mod log;
mod main_thread;
#[cfg(debug_assertions)]
mod open_keys;
mod probe;
mod reply;
mod scan;
mod string;
mod sweep;
mod text_cache;
mod timer;

pub use access::User;
pub use alloc::ServerAlloc;
pub use block::{Blocked, BlockedId, OnBlocked};
pub use call::CallReply;
pub use command::{Arg, ArgKind, CommandDocs, KeyUse, Keys, Run};
pub use config::{ConfigKind, OnConfig};
pub use ctx::{Ctx, Version};
pub use db::{Db, Propagate};
pub use event::{AskedFor, Event, EventClass, Happened, OnEvent, OnKeyEvent};
pub use guard::{guarded, watch_panics, OnPanic};
pub use info::{Info, OnInfo};
pub use key::{Access, Key, KeyType};
pub use main_thread::MainThread;
pub use probe::{drop_probes, Refusal};
pub use reply::Reply;
pub use string::{Str, Text};
pub use sweep::Sweep;
pub use text_cache::TextCache;
pub use timer::{OnTimer, Timer};

/// A function of the module API. The functions are pointers that are filled in when the module is
/// loaded, before other code of the module runs. If this server lacks the function, this panics,
/// and [`guard`] makes an error reply of that. To the compiler it is unsafe to read such a pointer,
/// so use this in an unsafe block.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(function) => function,
            None => $crate::ffi::guard::missing(stringify!($name)),
        }
    };
}
use api;
