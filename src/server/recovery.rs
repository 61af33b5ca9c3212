//! Recovery after a panic: the module goes on with a consistent state.

use super::state::{note_panic, Client, Server};
use crate::engine::{Answer, Error};
use crate::ffi::OnPanic;

/// The callback after a panic.
pub struct Recovery;

impl OnPanic for Recovery {
    fn recover() {
        note_panic();
    }
}

impl Server {
    /// Removes waiters that have no blocked client, and answers blocked clients that have no
    /// waiter with an error. A panic between the two steps can leave either.
    pub(super) fn match_clients(&mut self) {
        let Server { engine, clients, waiters, .. } = self;
        let is_known = |id| {
            let client: Option<&Client> = clients.get(&id);
            client.is_some_and(|client| waiters.get(&client.blocked.id()) == Some(&id))
        };
        engine.remove_waiters(|id| !is_known(id));
        let lost: Vec<_> = clients.keys().copied().filter(|id| !engine.has_waiter(*id)).collect();
        for id in lost {
            if let Some(Client { blocked, render }) = self.remove_client(id) {
                self.engine.take_back(id);
                blocked.answer(id, render(Answer::Failed(Error::Internal)));
            }
        }
    }
}
