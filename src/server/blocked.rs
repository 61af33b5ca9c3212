//! Clients that wait.

use super::{with_server, Client, Server, Unavailable, SERVER};
use crate::core::WaiterId;
use crate::engine::{Acquired, Answer, Ask, Error, Left};
use crate::ffi::{BlockedId, Ctx, OnBlocked, Reply};

/// Runs a request. None when the client waits now: its reply will come.
pub fn acquire(
    ctx: Ctx<'_>,
    ask: &Ask<'_>,
    render: fn(Answer) -> Reply,
) -> Result<Result<Option<Acquired>, Error>, Unavailable> {
    with_server(ctx, |server| {
        let acquired = server.engine.acquire(ctx, ask);
        server.engine.figures.answered(&acquired);
        Ok(match acquired? {
            Acquired::Waiting(id) => server.block(ctx, id, render),
            acquired => Some(acquired),
        })
    })
}

impl Server {
    /// Blocks the client. Where the server will not have it, the request was one
    /// that does not wait.
    fn block(
        &mut self,
        ctx: Ctx<'_>,
        id: WaiterId,
        render: fn(Answer) -> Reply,
    ) -> Option<Acquired> {
        match ctx.block::<Clients>() {
            Some(blocked) => {
                self.waiters.insert(blocked.id(), id);
                self.clients.insert(id, Client { blocked, render });
                self.engine.figures.waited += 1;
                None
            }
            None => {
                self.engine.figures.refused += 1;
                Some(Acquired::Refused(self.engine.stop(ctx, id).flatten()))
            }
        }
    }
}

struct Clients;

impl OnBlocked for Clients {
    fn unblocked(ctx: Ctx<'_>, id: BlockedId) -> Reply {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return Reply::Null;
        };
        let Some(client) = server.waiters.remove(&id).and_then(|id| {
            let left = server.engine.stop(ctx, id);
            server.clients.remove(&id).map(|client| (client, left))
        }) else {
            return Reply::Null;
        };
        let (Client { blocked, render }, left) = client;
        if left.is_some() {
            server.engine.figures.timeouts += 1;
        }
        blocked.dismiss();
        server.finish(ctx);
        render(Answer::TimedOut(left.flatten()))
    }

    fn left(id: BlockedId) {
        let mut server = SERVER.borrow_mut();
        let Some(server) = server.as_mut() else {
            return;
        };
        let Some(waiter) = server.waiters.remove(&id) else {
            return;
        };
        if server.engine.left(waiter) == Left::Waiting {
            if let Some(client) = server.clients.remove(&waiter) {
                client.blocked.dismiss();
            }
            // Those behind it may get in, but not from here: the server may be
            // about to become a replica.
            server.hurry();
        }
    }

    fn answered(ctx: Ctx<'_>, number: WaiterId, delivered: bool) {
        let mut server = SERVER.borrow_mut();
        if let Some(server) = server.as_mut() {
            server.engine.answered(ctx, number, delivered);
            if !delivered {
                server.hurry();
            }
        }
    }
}
