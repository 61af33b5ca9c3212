//! See `rwlock.rs`: the file to copy.
pub mod rwlock;
