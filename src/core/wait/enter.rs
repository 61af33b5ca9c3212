//! Entering a queue.

use super::deadlock::{break_circle, circle_through};
use super::{Circle, Holders, Joint, Locks, OwnerId, Place, WaitList, Waiter, WaiterId, Want};
use crate::core::{Lock, Mode};

/// Why a request may not wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The setting `max-waiters` is reached.
    TooManyWaiters,
    /// This other owner waits to upgrade the same lock: each would wait for the other to
    /// stop reading.
    OtherUpgrade(OwnerId),
    /// These owners would wait for each other. The first is the request's own; it is the
    /// only one when the owner would wait for itself.
    Deadlock(Vec<OwnerId>),
}

/// A request that may not wait.
#[derive(Debug)]
pub struct Rejected<L, R> {
    /// Why it may not wait.
    pub why: Denied,
    /// The request.
    pub waiter: Waiter<L, R>,
}

/// Among the locks of `S`.
type RejectedBy<S> = Box<Rejected<<S as Holders>::Lock, <S as Holders>::Request>>;

/// Adds a request to the end of its queues. `snapshots`: its locks as its owner sees them, in
/// the order of its places.
///
/// A request that closes a circle is denied, and comes back. The search may also find an older circle, which
/// no search has found before. Then that circle's youngest waiter gets the error instead.
pub fn enter<S: Locks>(
    locks: &mut S,
    snapshots: &[Lock],
    waiter: Waiter<S::Lock, S::Request>,
) -> Result<WaiterId, RejectedBy<S>> {
    if let Err(why) = check(locks.waits(), snapshots, &waiter) {
        return Err(Box::new(Rejected { why, waiter }));
    }
    let owner = waiter.owner.clone();
    let id = locks.waits_mut().add(waiter);
    while let Some(circle) = circle_closed_by(locks, &owner, snapshots) {
        if circle.youngest == id {
            if let Some(waiter) = locks.waits_mut().remove(id) {
                waiter.places.iter().for_each(|place| locks.queue_shortened(&place.lock));
                let why = Denied::Deadlock(circle.owners);
                return Err(Box::new(Rejected { why, waiter }));
            }
        }
        if !break_circle(locks, circle) {
            break;
        }
    }
    Ok(id)
}

fn check<L: Clone + Eq + std::hash::Hash, R>(
    waits: &WaitList<L, R>,
    snapshots: &[Lock],
    waiter: &Waiter<L, R>,
) -> Result<(), Denied> {
    let Waiter { owner, places, .. } = waiter;
    let reads = |lock: &Lock| lock.mode() == Some(Mode::Read) && !lock.own.reads.is_empty();
    if places.iter().zip(snapshots).any(|(place, lock)| place.want == Want::Write && reads(lock)) {
        return Err(Denied::Deadlock(vec![owner.clone()]));
    }
    let max = waits.rules.max_waiters;
    if max > 0 && waits.len() >= max {
        return Err(Denied::TooManyWaiters);
    }
    for place in places.iter().filter(|place| place.want == Want::Upgrade) {
        let queue = waits.queue(&place.lock);
        if let Some(other) = queue.and_then(|queue| queue.other_upgrade(owner)) {
            return Err(Denied::OtherUpgrade(other.clone()));
        }
    }
    Ok(())
}

/// A circle through an owner that has just begun to wait. `snapshots`: the locks as it sees them.
///
/// There is none while only one lock has waiters, each owner waits in one place, and the new
/// waiter holds nothing. Each wait then leads to an earlier turn or to a holder. A holder
/// that waits for its own lock waits for an upgrade, which has the earliest turn of all. So
/// no way leads back to the new waiter.
fn circle_closed_by<S: Locks>(locks: &S, owner: &OwnerId, snapshots: &[Lock]) -> Option<Circle> {
    let waits = locks.waits();
    let holds_nothing = snapshots.iter().all(|lock| lock.own.is_empty());
    if waits.queue_count() == 1 && waits.in_many_places().is_empty() && holds_nothing {
        return None;
    }
    if waits.has_joint() && holds_nothing && nobody_waits_for(locks, owner) {
        return None;
    }
    circle_through(locks, owner)
}

/// Whether no owner waits for one that has just begun to wait, and that holds none of the locks it
/// waits for. With joint waiters a search visits every waiter ahead, so this is found out first.
/// The new waiter has the last turn in its queues, unless its kind goes ahead. Then only those
/// could wait for it that wait for another lock that it holds.
fn nobody_waits_for<S: Locks>(locks: &S, owner: &OwnerId) -> bool {
    let waits = locks.waits();
    let mut own = waits.of_owner(owner);
    let (Some((_, waiter)), None) = (own.next(), own.next()) else {
        return false;
    };
    let goes_ahead = |place: &Place<S::Lock>| match place.want {
        Want::Upgrade => true,
        Want::Read | Want::Write => {
            waits.rules.policy.puts_writers_first() && Joint::of(&waiter.places) != Joint::Reads
        }
    };
    let is_place = |lock: &S::Lock| waiter.places.iter().any(|place| place.lock == *lock);
    let holds = |lock: &S::Lock| !is_place(lock) && locks.is_holder(lock, owner);
    !waiter.places.iter().any(goes_ahead) && !waits.may_be_waited_for(owner, holds)
}
