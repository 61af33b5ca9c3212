//! Integration tests: each starts its own servers, see [`harness`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod acquire;
mod announcements;
mod arguments;
mod checker;
mod clashes;
mod cluster;
mod crash;
mod differences;
mod differential;
mod docs;
mod downgrade;
mod every_command;
mod failover;
mod force;
mod foreign_hashes;
mod fuzz;
mod harness;
mod harness_self;
mod inspect;
mod introspection;
mod lapses;
mod loading;
mod migration;
mod names;
mod observe;
mod once;
mod persisted;
mod persistence;
mod propagation;
mod redisson;
mod release;
mod renew;
mod replication;
mod reservations;
mod server_refuses;
mod slots;
mod transactions;
mod unchanged;
mod upgrade;
