//! Integration tests: each starts its own servers, see [`harness`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod acquire;
mod checker;
mod docs;
mod downgrade;
mod force;
mod harness;
mod harness_self;
mod lapses;
mod once;
mod persisted;
mod release;
mod renew;
mod reservations;
mod upgrade;
