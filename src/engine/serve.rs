//! Serving a lock's queue.

use super::acquire::{Queueing, Taken};
use super::lapse::look_again;
use super::wait::Answer;
use super::{Engine, Error, Scene};
use crate::core::{
    self, Granted, Ledger, Lock, Mode, OwnerId, Queue, Reservation, Turn, WaiterId, Want,
};
use crate::store::{Owner, Store};

impl Engine {
    /// Grants to those who wait, as far as the rules and the server allow.
    pub(super) fn serve(&mut self, scene: Scene<'_>, store: &mut Store<'_>) {
        self.with_queue(scene, store, |turns, queue| {
            let policy = turns.engine.settings.policy;
            match core::serve(queue, policy, turns) {
                Ok(granted) => granted,
                Err(error) => {
                    turns.engine.fail_all(queue, &error);
                    Granted::new()
                }
            }
        });
    }

    /// Serves the other waiters of an owner that has just been granted a hold.
    pub(super) fn serve_holder(&mut self, scene: Scene<'_>, store: &mut Store<'_>, owner: &[u8]) {
        self.with_queue(scene, store, |turns, queue| {
            let owner: OwnerId = owner.into();
            if let Err(error) = core::serve_owner(queue, &owner, turns) {
                turns.engine.fail_all(queue, &error);
            }
            Granted::from_elem(owner, 1)
        });
    }

    /// Takes the queue out of memory, has it served, and puts back what is left
    /// of it. Then looks for circles through those who hold now.
    fn with_queue(
        &mut self,
        scene: Scene<'_>,
        store: &mut Store<'_>,
        serve: impl FnOnce(&mut Turns<'_, '_, '_>, &mut Queue) -> Granted,
    ) {
        if self.waiters.is_empty() {
            return;
        }
        let lock = store.lock();
        let Some(known) = self.memory.get_mut(lock) else {
            return;
        };
        if known.queue.is_none() {
            return;
        }
        if self.gives_back {
            if self.freed.last().is_none_or(|last| last.get() != lock) {
                self.freed.push(lock.into());
            }
            return;
        }
        let allowed = match scene.by_alarm {
            true => store.may_grant(),
            // The command that runs was allowed; only memory is no matter for
            // those that give back.
            false => !scene.ctx.situation().out_of_memory,
        };
        if !allowed {
            self.try_again(store);
            return;
        }
        let Some(mut queue) = known.queue.take() else {
            return;
        };
        let granted = serve(&mut Turns { engine: self, scene, store }, &mut queue);
        if queue.is_empty() {
            self.queues -= 1;
            self.forget_if_idle(lock);
        } else {
            let (_, known) = self.memory.entry(lock);
            known.queue = Some(queue);
            let mode = known.mode;
            self.look_within(store, look_again(self.queues, store, mode));
        }
        for owner in granted {
            self.break_circles(scene, store, &owner);
        }
        while let Some(owner) = self.unsettled.pop_first() {
            self.break_circles(scene, store, &owner);
        }
    }

    /// Whether anybody waits for the lock.
    pub(super) fn has_queue(&self, store: &Store<'_>) -> bool {
        let known = || self.memory.get(store.lock());
        !self.waiters.is_empty() && known().is_some_and(|known| known.queue.is_some())
    }

    /// Whether those who wait hold a new request up.
    pub(super) fn queue_holds_up(
        &self,
        store: &Store<'_>,
        owner: &Owner<'_>,
        want: Want,
        lock: &Lock,
        reservation: Reservation,
    ) -> bool {
        if self.waiters.is_empty() {
            return false;
        }
        let known = self.memory.get(store.lock());
        known.and_then(|known| known.queue.as_ref()).is_some_and(|queue| {
            let policy = self.settings.policy;
            queue.holds_up(owner.bytes(), want, lock.mode(), policy, reservation)
        })
    }

    /// Answers all who wait for the lock with an error.
    pub(super) fn fail_queue(&mut self, store: &Store<'_>, error: &Error) {
        let lock = store.lock();
        let known = self.memory.get_mut(lock);
        if let Some(mut queue) = known.and_then(|known| known.queue.take()) {
            self.fail_all(&mut queue, error);
            self.queues -= 1;
            self.forget_if_idle(lock);
        }
    }

    fn fail_all(&mut self, queue: &mut Queue, error: &Error) {
        for (id, want, _) in queue.in_order(self.settings.policy, None) {
            queue.remove(id, want);
            self.answer(id, Answer::Failed(error.clone()));
        }
    }
}

/// Serving, with all that it takes.
struct Turns<'e, 's, 'c> {
    engine: &'e mut Engine,
    scene: Scene<'s>,
    store: &'e mut Store<'c>,
}

impl Ledger for Turns<'_, '_, '_> {
    type Error = Error;

    fn standing(&mut self) -> Result<(Option<Mode>, Option<OwnerId>), Error> {
        let reserved = self.store.reservation()?;
        if let Some(reserved) = &reserved {
            self.engine.look_by(self.store, reserved.end);
        }
        let known = self.engine.memory.get(self.store.lock());
        Ok((known.and_then(|known| known.mode), reserved.map(|by| by.owner.into())))
    }

    fn attempt(&mut self, id: WaiterId, _: Want, _: &OwnerId) -> Result<Turn, Error> {
        let Some(waiter) = self.engine.waiters.get(&id) else {
            return Ok(Turn::Failed);
        };
        let (terms, name) = (waiter.terms, waiter.name.clone());
        let taken = Owner::new(&name).map_err(Error::from).and_then(|owner| {
            self.engine.take(self.scene, self.store, &owner, terms, Queueing::Served)
        });
        Ok(match taken {
            Ok(Taken::Held(grant)) => {
                self.engine.answer(id, Answer::Held(grant));
                Turn::Granted
            }
            Ok(Taken::Refused { .. }) => Turn::NotYet,
            Err(error) => {
                self.engine.answer(id, Answer::Failed(error));
                Turn::Failed
            }
        })
    }
}
