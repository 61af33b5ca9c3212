//! Serving a queue: granting waiters in order until one has to go on waiting.

use super::deadlock::break_circles;
use super::{Attempt, Ended, Locks, OwnerId, WaiterId, Want};
use smallvec::SmallVec;

/// The owners that were granted a hold.
type Granted = SmallVec<[OwnerId; 1]>;

/// Serves a lock's queue in its order until the first waiter that has to go on waiting. Then
/// breaks the circles that the new holders close. If the lock cannot be read, all its waiters
/// get the error.
pub fn serve<S: Locks>(locks: &mut S, lock: &S::Lock) {
    let mut granted = Granted::new();
    if let Err(error) = serve_in_order(locks, lock, &mut granted) {
        fail_all(locks, lock, &error);
    }
    break_circles(locks, granted);
}

/// Serves the other waiters of an owner that has just become a holder, if a holder may have
/// what they want. Then breaks the circles that the new holder closes.
pub fn serve_holder<S: Locks>(locks: &mut S, lock: &S::Lock, owner: &OwnerId) {
    serve_owner(locks, lock, owner);
    break_circles(locks, Granted::from_elem(owner.clone(), 1));
}

fn serve_in_order<S: Locks>(
    locks: &mut S,
    lock: &S::Lock,
    granted: &mut Granted,
) -> Result<(), S::Error> {
    let mut last_granted = None;
    while locks.waits().queue(lock).is_some() {
        let (mode, reserved) = locks.standing(lock)?;
        let policy = locks.waits().rules.policy;
        let queue = locks.waits().queue(lock);
        let next = queue.and_then(|queue| queue.next(mode, policy, reserved.as_deref()));
        let Some((id, want, owner)) = next else {
            break;
        };
        // A reader was granted just now, so a writer cannot be.
        if last_granted == Some(Want::Read) && want == Want::Write {
            break;
        }
        let owner = owner.clone();
        match attempt(locks, id) {
            Attempt::NotYet => break,
            Attempt::Failed(()) => {}
            Attempt::Granted(()) => {
                serve_owner(locks, lock, &owner);
                if let Some(queue) = locks.waits_mut().queue_mut(lock) {
                    queue.writer = (want != Want::Read).then(|| owner.clone());
                }
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
fn serve_owner<S: Locks>(locks: &mut S, lock: &S::Lock, owner: &OwnerId) {
    let queue = locks.waits().queue(lock);
    let own: Vec<WaiterId> =
        queue.into_iter().flat_map(|queue| queue.of_owner(owner)).map(|(id, _)| id).collect();
    for id in own {
        attempt(locks, id);
    }
}

/// Tries to grant a waiter. If its wait ends, it leaves the list and gets its answer.
fn attempt<S: Locks>(locks: &mut S, id: WaiterId) -> Attempt<(), ()> {
    let (end, attempt) = match locks.attempt(id) {
        Attempt::NotYet => return Attempt::NotYet,
        Attempt::Granted(grant) => (Ended::Granted(grant), Attempt::Granted(())),
        Attempt::Failed(error) => (Ended::Failed(error), Attempt::Failed(())),
    };
    if let Some(waiter) = locks.waits_mut().remove(id) {
        locks.ended(id, waiter, end);
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
            locks.ended(id, waiter, Ended::Failed(error.clone()));
        }
    }
}
