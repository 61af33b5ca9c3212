//! Entering a queue.

use super::deadlock::{break_circle, circle_through};
use super::{Circle, Locks, OwnerId, WaitList, Waiter, WaiterId, Want};
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

/// Adds a request to the end of its queues. `lock`: the snapshot for its owner.
///
/// A request that closes a circle is denied. The search may also find an older circle, which
/// no search has found before. Then that circle's youngest waiter gets the error instead.
pub fn enter<S: Locks>(
    locks: &mut S,
    lock: &Lock,
    waiter: Waiter<S::Lock, S::Request>,
) -> Result<WaiterId, Denied> {
    check(locks.waits(), lock, &waiter)?;
    let owner = waiter.owner.clone();
    let id = locks.waits_mut().add(waiter);
    while let Some(circle) = circle_closed_by(locks, &owner, lock) {
        if circle.youngest == id {
            if let Some(waiter) = locks.waits_mut().remove(id) {
                waiter.places.iter().for_each(|place| locks.queue_shortened(&place.lock));
            }
            return Err(Denied::Deadlock(circle.owners));
        }
        if !break_circle(locks, circle) {
            break;
        }
    }
    Ok(id)
}

fn check<L: Clone + Eq + std::hash::Hash, R>(
    waits: &WaitList<L, R>,
    lock: &Lock,
    waiter: &Waiter<L, R>,
) -> Result<(), Denied> {
    let Waiter { owner, places, .. } = waiter;
    let reads = lock.mode() == Some(Mode::Read) && !lock.own.reads.is_empty();
    if reads && places.iter().any(|place| place.want == Want::Write) {
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

/// A circle through an owner that has just begun to wait. `lock`: the snapshot for it.
///
/// There is none while only one lock has waiters, each owner waits in one place, and the new
/// waiter holds nothing. Each wait then leads to an earlier turn or to a holder. A holder
/// that waits for its own lock waits for an upgrade, which has the earliest turn of all. So
/// no way leads back to the new waiter.
fn circle_closed_by<S: Locks>(locks: &S, owner: &OwnerId, lock: &Lock) -> Option<Circle> {
    let waits = locks.waits();
    if waits.queue_count() == 1 && waits.in_many_places().is_empty() && lock.own.is_empty() {
        return None;
    }
    circle_through(locks, owner)
}
