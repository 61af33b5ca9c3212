//! Starts real Redis and Valkey servers for tests and cleans up after them.

mod builder;
mod clock;
mod cluster;
mod connect;
mod data_dir;
mod delay;
mod engine;
mod injector;
mod launch;
mod log;
mod meddler;
mod module;
mod moving;
mod port;
mod process;
mod replica;
mod running;
mod slot;

pub use builder::Builder;
pub use clock::Clock;
pub use cluster::Cluster;
pub use delay::{on_this_machine, processor_wait};
pub use engine::Engine;
pub use injector::{arm, disarm};
pub use launch::StartError;
pub use module::{library, unload};
pub use moving::{begin_to_move, id, migrate, set_slot, Migration};
pub use port::Port;
pub use replica::wait_synced;
pub use running::Server;
pub use slot::slot;
