//! Integration tests: each starts its own servers, see [`harness`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod acquire;
mod announcements;
mod checker;
mod cluster;
mod crash;
mod docs;
mod downgrade;
mod failover;
mod force;
mod harness;
mod harness_self;
mod lapses;
mod loading;
mod migration;
mod observe;
mod once;
mod persisted;
mod persistence;
mod propagation;
mod release;
mod renew;
mod replication;
mod reservations;
mod transactions;
mod upgrade;
