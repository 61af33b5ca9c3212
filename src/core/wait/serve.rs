//! Serving a queue: granting waiters in order until one has to go on waiting.

use super::deadlock::break_circles;
use super::queue::joins;
use super::{Attempt, Ended, Locks, OwnerId, Place, WaiterId, Want};
use smallvec::SmallVec;

/// The owners that were granted a hold.
type Granted = SmallVec<[OwnerId; 1]>;

/// Locks that a joint waiter was granted, each with its owner. They are still to be served: the
/// waiter is gone from their queues, and the owner is a holder.
type Rest<L> = Vec<(L, OwnerId)>;

/// Serves a lock's queue in its order until the first waiter that has to go on waiting. Then
/// breaks the circles that the new holders close. If the lock cannot be read, all its waiters
/// get the error. If a joint waiter was granted, its other locks are served as well.
pub fn serve<S: Locks>(locks: &mut S, lock: &S::Lock) {
    let (mut granted, mut rest) = (Granted::new(), Rest::new());
    serve_queue(locks, lock, &mut granted, &mut rest);
    serve_rest(locks, granted, rest);
}

/// Serves the other waiters of an owner that has just become a holder, if a holder may have
/// what they want. Then breaks the circles that the new holder closes.
pub fn serve_holder<S: Locks>(locks: &mut S, lock: &S::Lock, owner: &OwnerId) {
    let mut rest = Rest::new();
    serve_owner(locks, lock, owner, &mut rest);
    readers_may_wait(locks, lock);
    serve_rest(locks, Granted::from_elem(owner.clone(), 1), rest);
}

fn serve_rest<S: Locks>(locks: &mut S, mut granted: Granted, mut rest: Rest<S::Lock>) {
    while let Some((lock, owner)) = rest.pop() {
        serve_owner(locks, &lock, &owner, &mut rest);
        serve_queue(locks, &lock, &mut granted, &mut rest);
    }
    break_circles(locks, granted);
}

fn serve_queue<S: Locks>(
    locks: &mut S,
    lock: &S::Lock,
    granted: &mut Granted,
    rest: &mut Rest<S::Lock>,
) {
    if let Err(error) = serve_in_order(locks, lock, granted, rest) {
        fail_all(locks, lock, &error);
    }
    readers_may_wait(locks, lock);
}

/// Notes that the lock may not be in read mode any more. Readers that could join under the policy
/// may now wait for a joint waiter ahead.
fn readers_may_wait<S: Locks>(locks: &mut S, lock: &S::Lock) {
    let waits = locks.waits_mut();
    if waits.rules.policy.lets_readers_join() {
        waits.queue_changed(lock);
    }
}

fn serve_in_order<S: Locks>(
    locks: &mut S,
    lock: &S::Lock,
    granted: &mut Granted,
    rest: &mut Rest<S::Lock>,
) -> Result<(), S::Error> {
    let mut last_granted = None;
    // The last joint reader that waits for another lock, and that other readers may pass.
    let mut passed = 0;
    while locks.waits().queue(lock).is_some() {
        // First, because no waiter is to wait for a lock that cannot be read.
        let (mode, reserved) = locks.standing(lock)?;
        let policy = locks.waits().rules.policy;
        let queue = locks.waits().queue(lock).filter(|queue| !queue.is_kept_out());
        let next = queue.and_then(|queue| queue.next(mode, policy, reserved.as_deref(), passed));
        let Some((id, want, owner)) = next else {
            break;
        };
        // A reader was granted just now, so a writer cannot be.
        if last_granted == Some(Want::Read) && want == Want::Write {
            break;
        }
        let owner = owner.clone();
        match attempt(locks, id, rest) {
            Attempt::NotYet if is_joint(locks, id) && joins(want, mode, policy) => passed = id,
            Attempt::NotYet => break,
            Attempt::Failed(()) => {}
            Attempt::Granted(()) => {
                serve_owner(locks, lock, &owner, rest);
                granted.push(owner);
                // A writer keeps all other owners out, so the attempts end here.
                if want != Want::Read {
                    break;
                }
                last_granted = Some(want);
            }
        }
    }
    Ok(())
}

/// Tries all waiters of one owner on this lock.
fn serve_owner<S: Locks>(locks: &mut S, lock: &S::Lock, owner: &OwnerId, rest: &mut Rest<S::Lock>) {
    let queue = locks.waits().queue(lock);
    let own: Vec<WaiterId> =
        queue.into_iter().flat_map(|queue| queue.of_owner(owner)).map(|(id, _)| id).collect();
    for id in own {
        attempt(locks, id, rest);
    }
}

fn is_joint<S: Locks>(locks: &S, id: WaiterId) -> bool {
    locks.waits().get(id).is_some_and(|waiter| waiter.is_joint())
}

/// Whether a joint waiter waits for a lock that another owner is known to write. The service of
/// that lock's queue tries the waiter when the writer is gone.
fn is_kept_out<S: Locks>(locks: &S, id: WaiterId) -> bool {
    let waits = locks.waits();
    waits.get(id).filter(|waiter| waiter.is_joint()).is_some_and(|waiter| {
        let writer = |place: &Place<S::Lock>| waits.queue(&place.lock)?.only_holder();
        waiter.places.iter().filter_map(writer).any(|writer| *writer != waiter.owner)
    })
}

/// Tries to grant a waiter. If its wait ends, it leaves the list and gets its answer.
fn attempt<S: Locks>(locks: &mut S, id: WaiterId, rest: &mut Rest<S::Lock>) -> Attempt<(), ()> {
    if is_kept_out(locks, id) {
        return Attempt::NotYet;
    }
    let (end, attempt) = match locks.attempt(id) {
        Attempt::NotYet => return Attempt::NotYet,
        Attempt::Granted(grant) => (Ended::Granted(grant), Attempt::Granted(())),
        Attempt::Failed(error) => (Ended::Failed(error), Attempt::Failed(())),
    };
    if let Some(waiter) = locks.waits_mut().remove(id) {
        let places = if waiter.is_joint() { waiter.places.clone() } else { SmallVec::new() };
        let owner = waiter.owner.clone();
        locks.ended(id, waiter, end);
        for place in places {
            match attempt {
                Attempt::Granted(()) => rest.push((place.lock, owner.clone())),
                _ => locks.queue_shortened(&place.lock),
            }
        }
    }
    attempt
}

/// Ends the wait of all waiters of the lock with an error.
fn fail_all<S: Locks>(locks: &mut S, lock: &S::Lock, error: &S::Error) {
    let policy = locks.waits().rules.policy;
    let queue = locks.waits().queue(lock);
    let all = queue.map(|queue| queue.in_order(policy, None)).unwrap_or_default();
    for (id, ..) in all {
        if let Some(waiter) = locks.waits_mut().remove(id) {
            let places = if waiter.is_joint() { waiter.places.clone() } else { SmallVec::new() };
            locks.ended(id, waiter, Ended::Failed(error.clone()));
            places.iter().for_each(|place| locks.queue_shortened(&place.lock));
        }
    }
}
