//! What an owner sees of a hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hold::Hold;
use super::{Error, Options, Owner};

/// One or several locks that are held. Dropping it gives them back; [`Lock::unlock`] also tells
/// whether the hold was lost.
#[must_use = "it is given back when it is dropped"]
pub struct Lock<'a> {
    pub(super) owner: &'a Owner,
    pub(super) number: u64,
    pub(super) reads: Vec<String>,
    pub(super) writes: Vec<String>,
    pub(super) open: bool,
}

impl Lock<'_> {
    /// The fencing token of the first write lock. 0 if none was asked for: a storage that has seen
    /// any token rejects it.
    pub fn token(&self) -> i64 {
        let grips = self.owner.grips.borrow();
        let token = self.writes.first().and_then(|lock| grips.get(lock)?.token);
        token.unwrap_or(0)
    }

    /// The fencing token of each write lock, if they were asked for.
    pub fn tokens(&self) -> BTreeMap<String, i64> {
        let grips = self.owner.grips.borrow();
        let of = |lock: &String| Some((lock.clone(), grips.get(lock)?.token?));
        self.writes.iter().filter_map(of).collect()
    }

    /// Whether the hold is known to be lost. Looks at the connection, which takes some ms, and asks
    /// no server.
    pub fn is_lost(&self) -> bool {
        self.holds().iter().any(|hold| hold.is_lost())
    }

    /// Calls this when the hold is lost, from another thread, and never after the lock was given
    /// back. It must not block: to give back waits for it.
    pub fn on_lost(&self, callback: impl Fn() + Send + Sync + 'static) {
        let callback = Arc::new(callback);
        for hold in self.holds() {
            let callback = Arc::clone(&callback);
            hold.on_lost(self.number, Box::new(move || callback()));
        }
    }

    /// Asks the server whether the hold is still there, and renews it.
    pub fn check(&self) -> Result<(), Error> {
        self.holds().iter().try_for_each(|hold| hold.check())
    }

    /// From reading to writing without a gap. Of the options count `wait` and `fence`.
    pub fn upgrade(&mut self, options: Options) -> Result<(), Error> {
        let ([lock], []) = (&self.reads[..], &self.writes[..]) else {
            return Err(Error::Misuse(
                "upgrade() is for one lock that is read".to_owned(),
            ));
        };
        let mut grips = self.owner.grips.borrow_mut();
        if let Some(grip) = grips.get_mut(lock) {
            if grip.writers == 0 {
                grip.token = grip.hold.upgrade(lock, &options)?;
            }
            grip.readers -= 1;
            grip.writers += 1;
        }
        self.writes.append(&mut self.reads);
        Ok(())
    }

    /// From writing to reading without a gap. Readers that wait get in.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        let ([], [lock]) = (&self.reads[..], &self.writes[..]) else {
            return Err(Error::Misuse(
                "downgrade() is for one lock that is written".to_owned(),
            ));
        };
        let mut grips = self.owner.grips.borrow_mut();
        if let Some(grip) = grips.get_mut(lock) {
            if grip.writers == 1 {
                grip.hold.downgrade(lock)?;
                grip.token = None;
            }
            grip.writers -= 1;
            grip.readers += 1;
        }
        self.reads.append(&mut self.writes);
        Ok(())
    }

    /// Gives the locks back. `NotHeld`: the hold was lost before.
    pub fn unlock(mut self) -> Result<(), Error> {
        self.give_back()
    }

    fn holds(&self) -> Vec<Arc<Hold>> {
        let grips = self.owner.grips.borrow();
        let mut holds: Vec<Arc<Hold>> = Vec::new();
        for lock in self.reads.iter().chain(&self.writes) {
            let Some(grip) = grips.get(lock) else {
                continue;
            };
            if !holds.iter().any(|hold| Arc::ptr_eq(hold, &grip.hold)) {
                holds.push(Arc::clone(&grip.hold));
            }
        }
        holds
    }

    fn give_back(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let holds = self.holds();
        let mut grips = self.owner.grips.borrow_mut();
        for lock in &self.reads {
            grips
                .entry(lock.clone())
                .and_modify(|grip| grip.readers -= 1);
        }
        for lock in &self.writes {
            grips
                .entry(lock.clone())
                .and_modify(|grip| grip.writers -= 1);
        }
        let mut result = Ok(());
        for hold in holds {
            hold.forget(self.number);
            let used = |lock: &String| {
                grips
                    .get(lock)
                    .is_some_and(|grip| grip.readers + grip.writers > 0)
            };
            // The last one out gives the locks back.
            let left = if !hold.locks.iter().any(used) {
                grips.retain(|_, grip| !Arc::ptr_eq(&grip.hold, &hold));
                hold.end()
            } else if hold.is_lost() {
                Err(hold.lost_error())
            } else {
                let mut reads_only = self.writes.iter().filter(|lock| {
                    let grip = grips.get(*lock);
                    grip.is_some_and(|grip| {
                        Arc::ptr_eq(&grip.hold, &hold) && grip.writers == 0 && grip.readers > 0
                    })
                });
                reads_only.try_for_each(|lock| hold.downgrade(lock))
            };
            result = result.and(left);
        }
        result
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // An error cannot be returned from here: use `unlock` to see it.
        let _ = self.give_back();
    }
}
