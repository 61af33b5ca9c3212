//! Which user may run which command on which key.

mod joint;
mod keys;
pub mod rights;
