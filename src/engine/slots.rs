//! A lock whose slot this node does not serve (any more, or fully).

use super::memory::LockId;
use super::wait::Answer;
use super::{Engine, Error, Scene};
use crate::core::End;
use crate::store::{self, SlotOwner};

impl Engine {
    /// The lock's alarm rang, and its keys cannot be looked at. Those who wait
    /// are told where to go, or to come again.
    pub(super) fn slot_is_elsewhere(
        &mut self,
        scene: Scene<'_>,
        lock: &LockId,
        error: store::Error,
    ) {
        let owner = store::slot_owner(scene.ctx, &lock.name);
        let answer = match &owner {
            SlotOwner::Myself => Error::Store(error),
            SlotOwner::Other(moved) => Error::Elsewhere(moved.clone()),
            SlotOwner::Nobody => Error::Elsewhere("CLUSTERDOWN Hash slot not served".into()),
        };
        let Some(known) = self.memory.get_mut(lock.db, &lock.name) else {
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
            self.look_at(lock.db, &lock.name, soon);
        } else if let Some(known) = self.memory.get_mut(lock.db, &lock.name) {
            known.mode = None;
            self.unbind_lock(lock.db, &lock.name);
            self.forget_if_idle(lock.db, &lock.name);
        }
    }
}

/// How soon a lock of a slot that is on its way is looked at again, in ms.
const AGAIN: i64 = 500;
