//! The keys of a lock (`docs/keys.md`): their names, their content, and the only code that changes
//! them. For each change, the store writes the keyspace, signals WATCH and client caches, and
//! propagates plain commands with absolute times to the replicas and the AOF.

mod change;
mod error;
mod fields;
pub mod glob;
mod hash;
mod holds;
mod key_events;
#[cfg(fuzzing)]
pub mod layout;
mod lengthen;
mod lock;
mod names;
mod numbering;
mod owner;
mod propagation;
mod publish;
mod read;
mod reservation;
mod served;
mod slot;
mod snapshot;

pub use change::Forced;
pub use error::Error;
pub use holds::{Entry, Held};
pub use key_events::{take_key_events, KeyEvent, What};
pub use lock::{Reserved, Store};
pub use names::{check_together, hold_of_key, locks_of_key, may_share_keys, LockName};
pub use owner::Owner;
pub use propagation::{listeners, set_listeners, Listeners};
pub use publish::{announce_by, loop_awakes, loop_is_done, Channels, ClusterPublish};
pub use read::{ReadScope, Summary};
pub use served::is_here;
pub use slot::{slot_owner, SlotOwner};
pub use snapshot::Snapshot;

use crate::ffi::{Ctx, MainThread, Text, TextCache};
use lazy_static::lazy_static;
use names::Name;
use std::sync::atomic::{AtomicBool, Ordering};

/// A lock: a database and a name. The same name in another database is another lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRef<'a> {
    /// The number of the database.
    pub db: i32,
    /// The name of the lock.
    pub name: &'a [u8],
}

/// Whether the server is part of a cluster.
static CLUSTER: AtomicBool = AtomicBool::new(false);

/// Prepares the store when the module is loaded: reads whether the server is in a cluster, declares
/// the module's options and prepares the probes. The error is a text for the log.
pub fn init(ctx: Ctx<'_>) -> Result<(), String> {
    CLUSTER.store(ctx.is_cluster(), Ordering::Relaxed);
    ctx.declare_options();
    ctx.prepare_probes()
}

/// Whether the server is a node of a cluster.
pub fn is_cluster() -> bool {
    CLUSTER.load(Ordering::Relaxed)
}

/// Strings that nearly every change needs.
struct Words {
    mode: Text,
    read: Text,
    write: Text,
    pxat: Text,
    one: Text,
    zero: Text,
    empty: Text,
}

lazy_static! {
    static ref WORDS: MainThread<Words> = MainThread::new(Words {
        mode: Text::new(b"mode"),
        read: Text::new(b"read"),
        write: Text::new(b"write"),
        pxat: Text::new(b"PXAT"),
        one: Text::new(b"1"),
        zero: Text::new(b"0"),
        empty: Text::new(b""),
    });
}

lazy_static! {
    /// Names of keys, fields and channels that were used recently.
    static ref NAMES: MainThread<TextCache> = MainThread::new(TextCache::default());
}

/// Frees the cached names. To be called before the module is unloaded.
pub fn stop() {
    NAMES.clear();
}

/// Makes a string of the server from a name, or takes it from the cache.
fn text(name: &Name<'_>) -> Text {
    NAMES.text(|whole| name.append_to(whole))
}
