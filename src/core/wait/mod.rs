//! Waiting: the queues of all locks, whose turn it is, and who waits for whom.
//!
//! [`WaitList`] is what is known of all that wait. What happens to it goes through the
//! functions here: [`enter()`] when a request has to wait, [`serve()`] when a lock may have
//! become free, [`serve_holder`] when an owner has got a hold. They ask for the locks and
//! report what comes of it through [`Locks`]; the engine implements that with keys, timers
//! and clients, and the tests with plain values.

mod arrivals;
mod cycle;
mod deadlock;
mod enter;
mod list;
mod order;
mod queue;
mod serve;
mod waiter;

pub use cycle::Circle;
pub use deadlock::{circle_through, suspects};
pub use enter::{enter, Denied};
pub use list::{Place, Rules, WaitList, Waiter};
pub use queue::Queue;
pub use serve::{serve, serve_holder};
pub use waiter::{OwnerId, Policy, WaiterId, Want};

use super::Mode;
use std::hash::Hash;

/// The locks, as a search for circles sees them.
pub trait Holders {
    /// Names a lock.
    type Lock: Clone + Eq + Hash + Ord;
    /// What a waiter asked for, beside its places.
    type Request;

    /// All that wait.
    fn waits(&self) -> &WaitList<Self::Lock, Self::Request>;

    /// Who holds the lock. Of one that cannot be read: nothing.
    fn holding(&self, lock: &Self::Lock) -> Holding;
}

/// Who holds a lock, for a search for circles.
#[derive(Debug, Default)]
pub struct Holding {
    /// The lock's mode.
    pub mode: Option<Mode>,
    /// The owner whose reservation stands.
    pub reserved_by: Option<OwnerId>,
    /// Those of its holders that wait anywhere.
    pub waiting: Vec<OwnerId>,
}

/// The locks, as those see them that wait for them.
pub trait Locks: Holders {
    /// What a waiter is granted.
    type Grant;
    /// Why a lock cannot be read or written, or a request fails.
    type Error: Clone;

    /// The same as [`Holders::waits`], to be changed.
    fn waits_mut(&mut self) -> &mut WaitList<Self::Lock, Self::Request>;

    /// The lock's mode, and the owner whose reservation stands.
    fn standing(
        &mut self,
        lock: &Self::Lock,
    ) -> Result<(Option<Mode>, Option<OwnerId>), Self::Error>;

    /// Grants a waiter what it wants, if the rules allow it now.
    fn attempt(&mut self, id: WaiterId) -> Attempt<Self::Grant, Self::Error>;

    /// A waiter waits no more, and is to be told why. It is on the list no more.
    fn ended(
        &mut self,
        id: WaiterId,
        waiter: Waiter<Self::Lock, Self::Request>,
        end: Ended<Self::Grant, Self::Error>,
    );

    /// A waiter has left this queue otherwise than by being served. The queue is to be
    /// served soon, unless it is empty now.
    fn queue_shortened(&mut self, lock: &Self::Lock);
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Attempt<G, E> {
    /// The waiter has this.
    Granted(G),
    /// The request fails.
    Failed(E),
    /// It goes on waiting.
    NotYet,
}

/// How a wait ends.
#[derive(Debug)]
pub enum Ended<G, E> {
    /// The waiter has what it waited for.
    Granted(G),
    /// Its request failed.
    Failed(E),
    /// These owners wait for each other, the first is its own.
    Deadlock(Vec<OwnerId>),
}
