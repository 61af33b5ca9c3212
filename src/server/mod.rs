//! What the module and its server have to do with each other beside commands.

mod replicas;
mod version;

pub use version::check;

use crate::ffi::Ctx;

/// Starts to follow what happens to the server.
pub fn follow(ctx: Ctx<'_>) {
    replicas::follow(ctx);
}
