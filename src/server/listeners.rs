//! Detects listeners: the AOF, replicas and the replication backlog.
//!
//! To propagate a change costs more than the change itself, and the server finds out that there
//! are no listeners only after most of that cost. So the module finds out before, and propagates
//! nothing without listeners.
//!
//! No change is lost when a listener appears. A new listener makes the server fork first (to
//! rewrite the AOF, to synchronise a replica, to move a slot), and needs nothing from before the
//! fork. Only a replica that comes back does not, but it continues from the backlog, which counts
//! as a listener. So the module detects listeners anew when the server forks, when its role, its
//! replicas or its configuration change, and after a load. No event tells that a backlog has
//! ended, so that is checked at each tick.

use crate::ffi::Ctx;
use crate::store::{self, Listeners};

/// Detects listeners, and tells the store.
pub(super) fn detect(ctx: Ctx<'_>) {
    // A field that cannot be read counts as a listener.
    let is_zero = |field| ctx.info_number(c"replication", field) == Some(0);
    let replicas = !is_zero(c"connected_slaves");
    let files = ctx.has_aof() || ctx.is_cluster() || !is_zero(c"repl_backlog_active");
    store::set_listeners(match (replicas, files) {
        (true, _) => Listeners::Replicas,
        (false, true) => Listeners::Files,
        (false, false) => Listeners::Nobody,
    });
}

/// Checks whether the backlog is still there. It is the only listener that ends without an
/// event.
pub(super) fn check_backlog(ctx: Ctx<'_>) {
    if store::listeners() == Listeners::Files && !ctx.has_aof() && !ctx.is_cluster() {
        detect(ctx);
    }
}
