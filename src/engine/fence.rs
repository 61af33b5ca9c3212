//! Fencing tokens. A write hold comes with a number that its holder sends along with each write.
//! The storage rejects a write whose token is smaller than one that came before.

use super::state::Known;
use super::{Engine, Error};
use crate::core::{self, End, LastToken, Token};
use crate::store::{Owner, Snapshot, Store};

impl Engine {
    /// The token for a write hold, from a snapshot of the lock. Writes nothing. Fails when the
    /// tokens are used up.
    pub(super) fn next_token(
        &self,
        store: &Store<'_>,
        snapshot: &Snapshot,
        owner: &Owner<'_>,
    ) -> Result<Token, Error> {
        let known = self.memory.get(store.lock());
        let is_writer = |_: &&Known| snapshot.lock.own.writes > 0;
        let of_tenure = known.filter(is_writer).and_then(|known| known.token_of(owner.bytes()));
        // The fence key is read, because others may have deleted or overwritten it.
        let last =
            LastToken { stored: store.last_token()?, known: known.map_or(0, Known::last_token) };
        Ok(core::token(last, of_tenure, store.ctx().clock_micros())?)
    }

    /// Stores the token in the fence key, and remembers it with its owner until that owner stops
    /// writing.
    pub(super) fn store_token(&mut self, store: &Store<'_>, owner: &Owner<'_>, token: Token) {
        let ttl = self.settings.fence_ttl;
        // A fence key does not expire if `fence_ttl` is 0 or too large for the server's expiry.
        let end = End::of_lease(store.now(), ttl).unwrap_or(End::Never);
        store.set_last_token(token, end);
        if let Some(known) = self.memory.get_mut(store.lock()) {
            known.set_token(owner.bytes(), token);
        }
    }

    /// A new writer without a token begins: forgets the token of the writer before it.
    pub(super) fn forget_token(&mut self, store: &Store<'_>) {
        if let Some(known) = self.memory.get_mut(store.lock()) {
            known.forget_token();
        }
    }
}
