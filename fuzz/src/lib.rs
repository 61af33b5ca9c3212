//! What the fuzz targets share. See `CONTRIBUTING.md`, "Fuzzing".
//!
//! [`server`] is a small server in this process: it has strings, keys, clients and a replica, and
//! gives the module the functions of the module API, as a real server does when it loads one. So
//! the targets run the module as it ships, from the bytes of a command to its reply.

mod api;
pub mod foreign;
pub mod grammar;
pub mod input;
pub mod keys;
mod reply;
pub mod server;
pub mod shape;
mod state;
pub mod words;

// Links the module, whose entry `server` calls.
use rwlock as _;
