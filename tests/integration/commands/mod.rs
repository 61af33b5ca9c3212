//! What each command takes, answers and changes, as far as nobody waits.

mod acquire;
pub mod arguments;
mod clashes;
mod docs;
mod downgrade;
mod force;
pub mod foreign_hashes;
mod frozen_time;
mod held;
mod hotlocks;
mod inspect;
pub mod introspection;
mod joint;
mod list;
mod log;
mod names;
mod once;
mod queues;
mod release;
mod renew;
mod server_refuses;
mod times;
mod transactions;
mod upgrade;
