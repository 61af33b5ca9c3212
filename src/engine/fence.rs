//! Fencing tokens: a number with a write hold, which the holder sends along with each
//! write, so that the storage can reject a writer that lost the lock.

use super::state::Known;
use super::{Engine, Error};
use crate::core::{self, End, LastToken, Token};
use crate::store::{Owner, Snapshot, Store};

impl Engine {
    /// The token that goes with a write hold on the lock that was `snapshot`.
    /// Changes nothing yet.
    pub(super) fn token(
        &self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
    ) -> Result<Token, Error> {
        let known = self.memory.get(store.lock());
        let writes = |_: &&Known| snapshot.lock.own.writes > 0;
        let of_tenure = known.filter(writes).and_then(|known| known.token_of(owner.bytes()));
        // Others may have deleted the key, or written to it.
        let last =
            LastToken { stored: store.last_token()?, known: known.map_or(0, Known::last_token) };
        Ok(core::token(last, of_tenure, store.ctx().clock_micros())?)
    }

    /// Hands it out, and remembers it for as long as its owner goes on writing.
    pub(super) fn hand_out(&mut self, store: &Store<'_>, owner: &Owner<'_>, token: Token) {
        let ttl = self.settings.fence_ttl;
        // Neither 0 nor what is beyond all time ends.
        let end = End::of_lease(store.now(), ttl).unwrap_or(End::Never);
        store.set_last_token(token, end);
        if let Some(known) = self.memory.get_mut(store.lock()) {
            known.set_token(owner.bytes(), token);
        }
    }

    /// The owner who writes from now on has no token yet.
    pub(super) fn forget_token(&mut self, store: &Store<'_>) {
        if let Some(known) = self.memory.get_mut(store.lock()) {
            known.forget_token();
        }
    }
}
