//! Integration tests: each starts its own servers, see [`support`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access;
mod cluster;
mod commands;
mod events;
mod fencing;
mod harness;
mod leases;
mod monitoring;
mod redisson;
mod replication;
mod sessions;
mod settings;
mod stress;
mod waiting;
