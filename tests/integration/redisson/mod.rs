//! The module beside what Redisson clients do.

mod differences;
mod differential;
