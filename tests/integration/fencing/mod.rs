//! Fencing tokens.

mod key;
mod owner;
mod survives;
pub mod tokens;
mod waiting;
