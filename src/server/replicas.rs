//! Whether the server has replicas.
//!
//! An announcement that is handed on to replicas costs as much as half a
//! release, and most of that is spent before the server sees that there are
//! none. So we count them, when their number can have changed: a replica whose
//! stream begins anew makes the server fork first, and is counted from then on;
//! one that goes on from the backlog is reported as online.

use crate::ffi::{Ctx, Event, Happened, OnEvent};
use crate::store;

struct Count;

impl OnEvent for Count {
    fn on_event(ctx: Ctx<'_>, _: Happened) {
        // If in doubt there are some.
        let none = ctx.info_number(c"replication", c"connected_slaves") == Some(0);
        store::announce_to_replicas(!none);
    }
}

pub(super) fn follow(ctx: Ctx<'_>) {
    let events = [Event::RoleChanged, Event::ReplicaChanged, Event::ForkChild];
    if events.into_iter().all(|event| ctx.subscribe::<Count>(event)) {
        Count::on_event(ctx, Happened::Other);
    }
}
