//! Tests of waiting. The shipped rules and the shipped `core::wait` run in a small world of
//! plain values, and each state is checked against a second, simple form of the rules:
//!
//! - `world.rs`, `locks.rs`: the world, and the traits of `core::wait` on it;
//! - `step.rs`: what can happen in it;
//! - `rules.rs`, `circles.rs`: the second form of the rules, with which each state is checked;
//! - `history.rs`: the check of a whole history;
//! - `explore.rs` (all histories of tiny worlds), `random.rs` (long random histories),
//!   `stories.rs` (short histories that once went wrong), `limits.rs` (requests that may not
//!   wait), `listing.rs` (what is told of waiters), `searches.rs` (searches that are not
//!   needed), `wait_list.rs` (what the list of waiters knows): the tests.
//!
//! The fuzz target `waiting` uses the world too (`fuzz/`). So the files that it needs are also
//! compiled under `cfg(fuzzing)`, which only `cargo fuzz` sets.

#![expect(clippy::expect_used, reason = "these are tests, though `cargo fuzz` compiles them too")]

mod circles;
#[cfg(test)]
mod explore;
mod history;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod listing;
mod locks;
#[cfg(test)]
mod random;
mod rules;
#[cfg(test)]
mod searches;
mod step;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod wait_list;
mod world;

#[cfg(fuzzing)]
pub use history::{keeps_the_rules, LOCKS};
#[cfg(fuzzing)]
pub use step::{Request, Step};
