//! Integration tests: each starts its own servers, see [`harness`].

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod docs;
mod harness;
mod harness_self;
