//! Clients that wait.

use super::state::{with_server, Client, Server, SERVER};
use crate::core::WaiterId;
use crate::engine::{AcquireRequest, Acquired, Answer, Error};
use crate::ffi::{BlockedId, Ctx, OnBlocked, Reply};

/// Runs a request.
pub fn acquire(
    ctx: Ctx<'_>,
    request: &AcquireRequest<'_>,
    render: fn(Answer) -> Reply,
) -> Result<Acquired, Error> {
    with_server(ctx, |server| {
        let Server { engine, clients, waiters, .. } = server;
        let acquired = engine.acquire(ctx, request, |id| {
            let Some(blocked) = ctx.block::<Clients>() else {
                return false;
            };
            waiters.insert(blocked.id(), id);
            clients.insert(id, Client { blocked, render });
            true
        });
        engine.statistics.answered(&acquired);
        acquired
    })
}

struct Clients;

impl OnBlocked for Clients {
    fn unblocked(ctx: Ctx<'_>, id: BlockedId) -> Reply {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return Reply::Null;
        };
        let Some(id) = server.waiters.remove(&id) else {
            return Reply::Null;
        };
        let answer = server.engine.unblock(ctx, id);
        let Some(Client { blocked, render }) = server.clients.remove(&id) else {
            return Reply::Null;
        };
        if answer.is_some() {
            server.engine.statistics.timeouts += 1;
        }
        blocked.dismiss();
        server.finish(ctx);
        render(answer.unwrap_or(Answer::TimedOut(None)))
    }

    fn left(id: BlockedId) {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return;
        };
        let Some(waiter) = server.waiters.remove(&id) else {
            return;
        };
        if server.engine.disconnect_waiter(waiter) {
            if let Some(client) = server.clients.remove(&waiter) {
                client.blocked.dismiss();
            }
            // Those behind it may get in, but not from here: the server may be
            // about to become a replica.
            server.wake_soon();
        }
    }

    fn answered(ctx: Ctx<'_>, number: WaiterId, delivered: bool) {
        let mut server = SERVER.borrow_mut();
        if let Some(server) = server.as_mut() {
            server.engine.answered(ctx, number, delivered);
            if !delivered {
                server.wake_soon();
            }
        }
    }
}
