//! The world as `core::wait` reads and changes it.

use super::step::Reply;
use super::world::{name, Place, Waiter, World};
use crate::core::wait::{self, Attempt, Ended, Holders, Holding, Locks, WaitList};
use crate::core::{Mode, OwnerId, WaiterId};

impl Holders for World {
    type Lock = Place;
    type Request = Waiter;

    fn waits(&self) -> &WaitList<Place, Waiter> {
        &self.waits
    }

    fn is_holder(&self, lock: &Place, owner: &OwnerId) -> bool {
        self.locks[*lock].holds.contains_key(&owner[0])
    }

    fn holding(&self, lock: &Place) -> Holding {
        self.searched.set(self.searched.get() + 1);
        let here = &self.locks[*lock];
        let holders = here.holds.keys().map(|holder| name(*holder));
        Holding {
            mode: self.snapshot(*lock, u8::MAX).mode(),
            reserved_by: here.reserved.map(|(by, _)| name(by)),
            waiting: holders.filter(|holder| self.waits.owner(holder).is_some()).collect(),
        }
    }
}

impl Locks for World {
    type Grant = ();
    type Error = Reply;

    fn waits_mut(&mut self) -> &mut WaitList<Place, Waiter> {
        &mut self.waits
    }

    fn standing(&mut self, lock: &Place) -> Result<(Option<Mode>, Option<OwnerId>), Reply> {
        if self.locks[*lock].is_no_lock {
            return Err(Reply::WrongType);
        }
        let reserved = self.locks[*lock].reserved.map(|(by, _)| name(by));
        Ok((self.snapshot(*lock, u8::MAX).mode(), reserved))
    }

    fn attempt(&mut self, id: WaiterId) -> Attempt<(), Reply> {
        assert!(!std::mem::take(&mut self.panics), "a panic that a test asked for");
        let waiter = self.waits.get(id).expect("a waiter on the list").request;
        match self.try_acquire(waiter, Some(id)) {
            Ok(true) => Attempt::Granted(()),
            Ok(false) => Attempt::NotYet,
            Err(reply) => Attempt::Failed(reply),
        }
    }

    fn ended(&mut self, id: WaiterId, waiter: wait::Waiter<Place, Waiter>, end: Ended<(), Reply>) {
        let reply = match end {
            Ended::Granted(()) => Reply::Held,
            Ended::Failed(reply) => reply,
            Ended::Deadlock(circle) => {
                self.check_deadlock(id, waiter.request, &circle);
                if self.entering == Some(false) {
                    self.violations.push(format!(
                        "waiter {id} gets the error for a circle that a later waiter closed"
                    ));
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
