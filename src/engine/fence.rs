//! Fencing tokens: a write hold with a number that its holder shows to what it
//! writes to.

use super::memory::Known;
use super::{Engine, Error, Scene};
use crate::core::{self, End, Token};
use crate::store::{Seen, Store};

impl Engine {
    /// The token that goes with a write hold on the lock that was `seen`.
    /// Changes nothing yet.
    pub(super) fn token(
        &self,
        scene: Scene<'_>,
        store: &Store<'_>,
        seen: &Seen,
    ) -> Result<Token, Error> {
        let known = self.memory.get(scene.db, store.name());
        let of_tenure = known.filter(|_| seen.lock.own.writes > 0).and_then(Known::token);
        Ok(core::token(store.last_token()?, of_tenure, scene.ctx.clock_micros())?)
    }

    /// Hands it out, and remembers it for as long as its owner goes on writing.
    pub(super) fn hand_out(&mut self, scene: Scene<'_>, store: &Store<'_>, token: Token) {
        let ttl = self.settings.fence_ttl;
        // Neither 0 nor what is beyond all time ends.
        let end = End::of_lease(store.now(), ttl).unwrap_or(End::Never);
        store.set_last_token(token, end);
        self.set_token(scene, store, Some(token));
    }

    /// The owner who writes from now on has no token yet.
    pub(super) fn forget_token(&mut self, scene: Scene<'_>, store: &Store<'_>) {
        self.set_token(scene, store, None);
    }

    fn set_token(&mut self, scene: Scene<'_>, store: &Store<'_>, token: Option<Token>) {
        if let Some(known) = self.memory.get_mut(scene.db, store.name()) {
            known.set_token(token);
        }
    }
}
