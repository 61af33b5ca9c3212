//! Integration tests: each starts its own servers, see [`harness`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access;
mod checker;
mod cluster;
mod commands;
mod crowd;
mod events;
mod every_command;
mod fencing;
mod harness;
mod harness_self;
mod leases;
mod monitoring;
mod observe;
mod pending;
mod redisson;
mod redisson_scripts;
mod replication;
mod sessions;
mod settings;
mod stress;
mod unchanged;
mod waiting;
