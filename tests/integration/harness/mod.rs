//! Starts real Redis and Valkey servers for tests and cleans up after them.
//!
//! ```ignore
//! let server = Server::builder().aof().start();
//! let mut con = server.connection();
//! assert_ok(call!(con, "SET", "key", 1));
//! ```
//!
//! Every [`Server`] has its own data directory and a port that no other test,
//! in this process or another, can get at the same time. When it goes out of
//! scope it is stopped, and the test fails if the server crashed, refused to
//! stop or logged a sign of trouble. A failing test prints the end of the log
//! and keeps the directory.
//!
//! To use it for another module, change [`builder::MODULE`].

mod builder;
mod clock;
mod cluster;
mod connect;
mod data_dir;
mod engine;
mod injector;
mod launch;
mod log;
mod meddler;
mod moving;
mod port;
mod process;
mod replica;
mod reply;
mod server;
mod slot;
mod wait;

pub use builder::Builder;
pub use clock::Clock;
pub use cluster::Cluster;
pub use engine::Engine;
pub use injector::{arm, disarm};
pub use launch::StartError;
pub use moving::{begin_to_move, id, migrate, set_slot};
pub use port::Port;
pub use replica::wait_synced;
pub(crate) use reply::call;
pub use reply::{assert_error, assert_ok, bytes, error_text, int, list, map, send, text, Call};
pub use server::Server;
pub use slot::slot;
pub use wait::{wait_until, wait_until_within, DEADLINE};
