//! What the integration tests and the benchmark share: servers, clients, locks, bytes on
//! the wire, random numbers.
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
//! | for | use |
//! |---|---|
//! | a server, a replica, a cluster, a clock that the test sets | [`Server`], [`Cluster`], [`Clock`] |
//! | a command and its reply | [`call!`], [`int`], [`text`], [`assert_error`] |
//! | a client that waits, several of them | [`Client`], [`Crowd`] |
//! | the keys of one lock | [`lock`] |
//! | what a server keeps and announces | [`observe`] |
//! | bytes: batches, cut connections, what a replica receives | [`wire`] |
//! | each command of the module, to make one thing wrong | [`every_command`], [`refused!`] |
//! | scripts that stand for Redisson's | [`redisson`] |
//! | random numbers | [`Random`] |
//! | a panic inside the module | [`arm`], [`disarm`] |
//!
//! To test another module, change `MODULE` in `server/builder.rs`.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod client;
mod crowd;
pub mod every_command;
pub mod lock;
pub mod observe;
mod random;
pub mod redisson;
mod reply;
mod rerun;
mod server;
pub mod unchanged;
mod wait;
pub mod wire;

pub use client::{is_blocked, Client};
pub use crowd::{owners, owners_sorted, Crowd};
pub use random::{fresh_seed, number_from_environment, Random};
pub use reply::{
    assert_error, assert_ok, bytes, error_text, int, list, map, micros, send, text, Call, Reply,
};
pub use rerun::in_own_process;
pub use server::{
    arm, begin_to_move, disarm, id, library, migrate, on_this_machine, processor_wait, set_slot,
    slot, unload, wait_synced, Builder, Clock, Cluster, Engine, Migration, Port, Server,
    StartError,
};
pub use wait::{assert_prompt, local_clock, wait_until, wait_until_within, DEADLINE};
