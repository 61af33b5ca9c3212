//! Who hears of what is written: an AOF, replicas.
//!
//! To hand a change on costs more than to make it, and the server finds out
//! that nobody listens only when the command is made. So we know, and hand
//! nothing on to nobody.
//!
//! Whoever begins to listen makes the server fork first (a rewrite of the AOF, a
//! replica's first synchronisation, a slot that moves), and needs nothing from
//! before the fork; or goes on from a backlog, which counts as listening. So it
//! is asked anew whenever the server forks, changes its role, its replicas or
//! its configuration, or has loaded a file; and now and then, as nothing tells
//! of a backlog's end.

use crate::ffi::Ctx;
use crate::store::{self, Listeners};

/// Asks anew.
pub(super) fn detect(ctx: Ctx<'_>) {
    // If in doubt there are some.
    let none = |field| ctx.info_number(c"replication", field) == Some(0);
    let replicas = !none(c"connected_slaves");
    let unseen = ctx.has_aof() || ctx.is_cluster() || !none(c"repl_backlog_active");
    store::set_listeners(match (replicas, unseen) {
        (true, _) => Listeners::Replicas,
        (false, true) => Listeners::Files,
        (false, false) => Listeners::Nobody,
    });
}

/// Asks whether a backlog is still there: that is all that can end unnoticed.
pub(super) fn check_backlog(ctx: Ctx<'_>) {
    if store::listeners() == Listeners::Files && !ctx.has_aof() && !ctx.is_cluster() {
        detect(ctx);
    }
}
