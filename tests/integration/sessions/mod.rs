//! Session holds, which end with a connection.

mod bindings;
mod closes;
pub mod holds;
mod moves;
mod renewals;
mod slots;
