//! Tests of waiting. The shipped rules and the shipped `core::wait` run in a small world of
//! plain values, and each state is checked against a second, simple form of the rules:
//!
//! - `world.rs`, `locks.rs`: the world, and the traits of `core::wait` on it;
//! - `step.rs`: what can happen in it;
//! - `rules.rs`, `circles.rs`: the second form of the rules, with which each state is checked;
//! - `explore.rs` (all histories of tiny worlds), `random.rs` (long random histories),
//!   `stories.rs` (short histories that once went wrong), `limits.rs` (requests that may not
//!   wait), `listing.rs` (what is told of waiters), `searches.rs` (searches that are not
//!   needed): the tests.

mod circles;
mod explore;
mod limits;
mod listing;
mod locks;
mod random;
mod rules;
mod searches;
mod step;
mod stories;
mod world;
