//! Into the queue.

use super::deadlock::{break_circle, circle_through};
use super::{Circle, Locks, OwnerId, WaitList, Waiter, WaiterId, Want};
use crate::core::{Lock, Mode};

/// Why a request may not wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// As many wait as may.
    TooManyWaiters,
    /// Another owner waits to upgrade, and both would wait for each other.
    OtherUpgrade(OwnerId),
    /// These owners would wait for each other, the first is its own.
    Deadlock(Vec<OwnerId>),
}

/// Adds a request to the end of the queue, unless it would wait for itself. `lock`: as
/// its owner sees it. A request that closes a circle is denied. A circle that was there
/// before, and that no search has met yet, is broken as always: its youngest is told.
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

/// A circle through an owner that has just begun to wait. Where its lock is the only one
/// that is waited for, those that wait do so one way: nobody waits for one that came last
/// and holds nothing there.
fn circle_closed_by<S: Locks>(locks: &S, owner: &OwnerId, lock: &Lock) -> Option<Circle> {
    let waits = locks.waits();
    if waits.queue_count() == 1 && waits.in_many_places().is_empty() && lock.own.is_empty() {
        return None;
    }
    circle_through(locks, owner)
}
