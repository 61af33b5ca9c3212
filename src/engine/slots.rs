//! A lock whose slot this node does not serve (any more, or fully).

use super::wait::Answer;
use super::{Engine, Error, Scene};
use crate::core::End;
use crate::store::{self, SlotOwner};

impl Engine {
    /// The lock's alarm rang, and its keys cannot be looked at. Those who wait
    /// are told where to go, or to come again.
    pub(super) fn slot_is_elsewhere(&mut self, scene: Scene<'_>, name: &[u8], error: store::Error) {
        let owner = store::slot_owner(scene.ctx, name);
        let answer = match &owner {
            SlotOwner::Myself => Error::Store(error),
            SlotOwner::Other(moved) => Error::Elsewhere(moved.clone()),
            SlotOwner::Nobody => Error::Elsewhere("CLUSTERDOWN Hash slot not served".into()),
        };
        let Some(known) = self.memory.get_mut(scene.db, name) else {
            return;
        };
        if let Some(queue) = known.queue.take() {
            self.queues -= 1;
            for (id, ..) in queue.in_order(self.settings.policy) {
                self.answer(id, Answer::Failed(answer.clone()));
            }
        }
        if owner == SlotOwner::Myself {
            // It may stay after all.
            let soon = End::At(scene.ctx.now() + AGAIN);
            self.look_at(scene.db, name, soon);
        } else if let Some(known) = self.memory.get_mut(scene.db, name) {
            known.mode = None;
            self.unbind_lock(scene.db, name);
            self.forget_if_idle(scene.db, name);
        }
    }
}

/// How soon a lock of a slot that is on its way is looked at again, in ms.
const AGAIN: i64 = 500;
