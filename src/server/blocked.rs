//! Blocked clients: the clients of waiters.

use super::state::{with_server, Client, Server, SERVER};
use crate::core::WaiterId;
use crate::engine::{Acquired, Answer, Engine, Error};
use crate::ffi::{BlockedId, Ctx, OnBlocked, Reply};

/// Blocks the client of a request that has to wait. False: the server does not allow it.
pub type Block<'a> = &'a mut dyn FnMut(WaiterId) -> bool;

/// Runs a request. If it has to wait, its client is blocked, and `render` makes the reply from
/// the answer later.
pub fn acquire(
    ctx: Ctx<'_>,
    render: fn(Answer) -> Reply,
    request: impl FnOnce(&mut Engine, Block<'_>) -> Result<Acquired, Error>,
) -> Result<Acquired, Error> {
    with_server(ctx, |server| {
        let Server { engine, clients, waiters, .. } = server;
        let acquired = request(engine, &mut |id| {
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

/// The callbacks of blocked clients.
struct Clients;

impl OnBlocked for Clients {
    fn unblocked(ctx: Ctx<'_>, id: BlockedId) -> Reply {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return Reply::Null;
        };
        let Some(id) = server.waiters.get(&id).copied() else {
            return Reply::Null;
        };
        let answer = server.engine.unblock(ctx, id);
        let Some(Client { blocked, render }) = server.remove_client(id) else {
            return Reply::Null;
        };
        blocked.dismiss();
        server.finish(ctx);
        render(answer.unwrap_or(Answer::TimedOut(None)))
    }

    fn disconnected(ctx: Ctx<'_>, id: BlockedId) {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return;
        };
        let Some(waiter) = server.waiters.get(&id).copied() else {
            return;
        };
        if server.engine.disconnect_waiter(ctx, waiter) {
            if let Some(client) = server.remove_client(waiter) {
                client.blocked.dismiss();
            }
            // Waiters behind it may get in now. But the queue is served later, because the
            // server may be about to become a replica.
            server.wake_soon();
        }
    }

    fn answered(ctx: Ctx<'_>, id: WaiterId, delivered: bool) {
        let mut server = SERVER.borrow_mut();
        if let Some(server) = server.as_mut() {
            server.engine.answered(ctx, id, delivered);
            if !delivered {
                server.wake_soon();
            }
        }
    }
}
