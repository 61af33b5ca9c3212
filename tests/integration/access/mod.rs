//! Which user may run which command on which key.

mod keys;
pub mod rights;
