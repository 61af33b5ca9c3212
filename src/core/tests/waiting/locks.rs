//! The world as the waiting sees it.

use super::step::Reply;
use super::world::{name, Place, Waiter, World};
use crate::core::wait::{self, Attempt, Ended, Holders, Locks, WaitList};
use crate::core::{Mode, OwnerId, WaiterId};

impl Holders for World {
    type Lock = Place;
    type Request = Waiter;

    fn waits(&self) -> &WaitList<Place, Waiter> {
        &self.waits
    }

    fn waiting_holders(&self, lock: &Place) -> (Option<Mode>, Vec<OwnerId>) {
        let holders = self.locks[*lock].holds.keys().map(|holder| name(*holder));
        let waiting = holders.filter(|holder| self.waits.owner(holder).is_some());
        (self.seen(*lock, u8::MAX).mode(), waiting.collect())
    }
}

impl Locks for World {
    type Grant = ();
    type Error = Reply;

    fn waits_mut(&mut self) -> &mut WaitList<Place, Waiter> {
        &mut self.waits
    }

    fn standing(&mut self, lock: &Place) -> Result<(Option<Mode>, Option<OwnerId>), Reply> {
        let reserved = self.locks[*lock].reserved.map(|(by, _)| name(by));
        Ok((self.seen(*lock, u8::MAX).mode(), reserved))
    }

    fn attempt(&mut self, id: WaiterId) -> Attempt<(), Reply> {
        let waiter = self.waits.get(id).expect("one that waits").request;
        match self.take(waiter, id, false) {
            Ok(true) => Attempt::Granted(()),
            Ok(false) => Attempt::NotYet,
            Err(reply) => Attempt::Failed(reply),
        }
    }

    fn ended(&mut self, id: WaiterId, waiter: wait::Waiter<Place, Waiter>, end: Ended<(), Reply>) {
        let reply = match end {
            Ended::Granted(()) => Reply::Held,
            Ended::Failed(reply) => reply,
            Ended::Deadlock(_) => {
                self.judge(id, waiter.request);
                if self.entering == Some(false) {
                    self.wrongs.push(format!("waiter {id} is told of a later one's circle"));
                }
                Reply::Deadlock
            }
        };
        self.answers.push((id, reply));
    }

    fn queue_shortened(&mut self, lock: &Place) {
        self.locks[*lock].due |= self.waits.queue(lock).is_some();
    }
}
