//! Serving a queue: who is granted, until somebody has to go on waiting.

use super::queue::{OwnerId, Policy, Queue, WaiterId, Want};
use super::Mode;
use smallvec::SmallVec;

/// What serving needs to know and to do outside the rules.
pub trait Ledger {
    /// Why the lock cannot be read or written at all.
    type Error;

    /// The lock's mode, and the owner whose reservation stands.
    fn standing(&mut self) -> Result<(Option<Mode>, Option<OwnerId>), Self::Error>;

    /// Grants a waiter what it wants, if the rules allow it now.
    fn attempt(&mut self, id: WaiterId, want: Want, owner: &OwnerId) -> Result<Turn, Self::Error>;
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The waiter has it, and waits no more.
    Granted,
    /// The waiter got an error, and waits no more.
    Failed,
    /// It has to go on waiting.
    NotYet,
}

/// The owners that were granted something.
pub type Granted = SmallVec<[OwnerId; 1]>;

/// Serves the queue in its order until the first who has to go on waiting.
/// Gives back the owners that were granted something.
pub fn serve<L: Ledger>(
    queue: &mut Queue,
    policy: Policy,
    ledger: &mut L,
) -> Result<Granted, L::Error> {
    let mut granted = Granted::new();
    let mut last = None;
    while !queue.is_empty() {
        let (mode, reserved) = ledger.standing()?;
        let Some((id, want, owner)) = queue.next(mode, policy, reserved.as_deref()) else {
            break;
        };
        if last == Some(Want::Read) && want == Want::Write {
            break;
        }
        let owner = owner.clone();
        match ledger.attempt(id, want, &owner)? {
            Turn::NotYet => break,
            Turn::Failed => {
                queue.remove(id, want);
            }
            Turn::Granted => {
                queue.remove(id, want);
                serve_owner(queue, &owner, ledger)?;
                queue.writer = (want != Want::Read).then(|| owner.clone());
                granted.push(owner);
                // A writer is alone with what serving its owner granted, and
                // readers let no writer in: there is no need to try.
                if want != Want::Read {
                    break;
                }
                last = Some(want);
            }
        }
    }
    Ok(granted)
}

/// Serves the other waiters of an owner that has just become a holder, as far
/// as a holder may have what they want.
pub fn serve_owner<L: Ledger>(
    queue: &mut Queue,
    owner: &OwnerId,
    ledger: &mut L,
) -> Result<(), L::Error> {
    let own: Vec<(WaiterId, Want)> = queue.of_owner(owner).collect();
    for (id, want) in own {
        if ledger.attempt(id, want, owner)? != Turn::NotYet {
            queue.remove(id, want);
        }
    }
    Ok(())
}
