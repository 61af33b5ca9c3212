//! Clients that wait.

use super::{run, Client, SERVER};
use crate::core::WaiterId;
use crate::engine::{Acquired, Answer, Ask, Error, Left};
use crate::ffi::{BlockedId, Ctx, OnBlocked, Reply};

/// Runs a request. None when the client waits now: its reply will come.
pub fn acquire(
    ctx: Ctx<'_>,
    ask: &Ask<'_>,
    render: fn(Answer) -> Reply,
) -> Result<Option<Acquired>, Error> {
    let Some(acquired) = run(ctx, |engine| {
        let acquired = engine.acquire(ctx, ask);
        engine.figures.answered(&acquired);
        acquired
    }) else {
        return Ok(None);
    };
    match acquired? {
        Acquired::Waiting(id) => Ok(block(ctx, id, render)),
        acquired => Ok(Some(acquired)),
    }
}

/// Blocks the client. Where the server will not have it, the request was one
/// that does not wait.
fn block(ctx: Ctx<'_>, id: WaiterId, render: fn(Answer) -> Reply) -> Option<Acquired> {
    match ctx.block::<Clients>() {
        Some(blocked) => {
            if let Some(server) = SERVER.borrow_mut().as_mut() {
                server.waiters.insert(blocked.id(), id);
                server.clients.insert(id, Client { blocked, render });
                server.engine.figures.waited += 1;
            }
            None
        }
        None => {
            let left = run(ctx, |engine| {
                engine.figures.refused += 1;
                engine.stop(ctx, id)
            });
            Some(Acquired::Refused(left.flatten().flatten()))
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
