//! Waiting: the queues of all locks, the order of service, and the search for deadlocks.
//!
//! [`WaitList`] has all waiters. The functions here change it: [`enter()`] when a request
//! has to wait, [`serve()`] when a lock may have become free, [`serve_holder`] when an owner
//! was granted a hold. They read locks and report results through the trait [`Locks`]. The
//! engine implements this trait with keys, timers and clients, the tests with plain values.
//!
//! # Joint waiters
//!
//! A waiter of several locks ([`Joint`]) has one place in the queue of each of them. It is served
//! when it is its turn in all queues at once. So it can stand at the head of a queue while that
//! lock is free. Nobody passes it there, but for readers that join under prefer-readers. Arrivals
//! are one order over all queues, so joint waiters that hold nothing never wait for each other in
//! a circle. With holds they can: `order.rs` has the edges. `hold_ended` and `queue_changed`
//! (`list.rs`) name the owners that wait for more owners because a hold ended.
//!
//! # A new policy
//!
//! Add the variant to [`Policy`] and answer its two questions: `lets_readers_join` and
//! `puts_writers_first` (`waiter.rs`; the compiler asks for both). No other function knows
//! the variants. A policy that these two do not describe needs a third question there, which
//! the functions below have to ask:
//!
//! | function | what it decides |
//! |---|---|
//! | `queue.rs`: [`Queue::holds_up`] | whether a new request of an owner without holds waits behind the waiters |
//! | `queue.rs`: [`Queue::next`] | which waiter is served next |
//! | `queue.rs`: [`Queue::in_order`] | in which order INSPECT lists the waiters |
//! | `order.rs`: `own_turn` | whose turn comes first; it has to agree with `next`, or deadlocks are missed or invented |
//! | `order.rs`: `held_up_since` | which waiters, and whether a reservation, keep a waiting reader from joining the readers that hold the lock |
//! | `core/request.rs`: `ignores_reservation` | which requests pass another owner's reservation |
//! | `core/request.rs`: `lets_others_in` | after which grants waiters of other owners may join |
//!
//! `limit` and `writer_between` in `order.rs` assume that writers are served in the order of
//! arrival.
//!
//! Outside of the rules: `server/settings.rs` (the word of the setting, and `POLICIES` in
//! the same order), `docs/settings.md` and `docs/commands/README.md`. The tests compare
//! with a search that leaves out nothing: `core/tests/waiting/rules.rs` (`may_have`) and
//! `circles.rs` (`joins`, `turns`, `first`); `explore.rs` and `random.rs` list the policies.

mod arrivals;
mod cycle;
mod deadlock;
mod enter;
mod holder;
mod list;
mod order;
mod queue;
mod serve;
mod waiter;

pub use cycle::Circle;
pub use deadlock::{circle_through, suspects};
pub use enter::{enter, Denied};
pub use holder::Holder;
pub use list::{Rules, WaitList, Waiter};
pub use queue::Queue;
pub use serve::{serve, serve_holder};
pub use waiter::{Joint, OwnerId, Place, Policy, WaiterId, Want};

use super::Mode;
use std::hash::Hash;

/// The locks, as a search for circles reads them.
pub trait Holders {
    /// Names a lock.
    type Lock: Clone + Eq + Hash + Ord;
    /// The part of a waiter's request that only the implementor of [`Locks`] needs.
    type Request;

    /// All waiters.
    fn waits(&self) -> &WaitList<Self::Lock, Self::Request>;

    /// The holders of the lock. A lock that cannot be read counts as free.
    fn holding(&self, lock: &Self::Lock) -> Holding;

    /// Whether the owner has a live hold on the lock.
    fn is_holder(&self, lock: &Self::Lock, owner: &OwnerId) -> bool;
}

/// The holders of a lock, as a search for circles reads them.
#[derive(Debug, Default)]
pub struct Holding {
    /// The lock's mode; None: it is free.
    pub mode: Option<Mode>,
    /// The owner that has reserved the lock.
    pub reserved_by: Option<OwnerId>,
    /// The holders that wait themselves, for this lock or another.
    pub waiting: Vec<OwnerId>,
}

/// The locks, as the service of their queues reads and changes them.
pub trait Locks: Holders {
    /// A granted hold.
    type Grant;
    /// Why a lock cannot be read or written, or why a request fails.
    type Error: Clone;

    /// All waiters, to be changed.
    fn waits_mut(&mut self) -> &mut WaitList<Self::Lock, Self::Request>;

    /// The lock's mode, and the owner that has reserved it.
    fn standing(
        &mut self,
        lock: &Self::Lock,
    ) -> Result<(Option<Mode>, Option<OwnerId>), Self::Error>;

    /// Grants a waiter its request, if the rules allow it now.
    fn attempt(&mut self, id: WaiterId) -> Attempt<Self::Grant, Self::Error>;

    /// A wait is over: the implementor sends the client its answer. The waiter is not on
    /// the list any more.
    fn ended(
        &mut self,
        id: WaiterId,
        waiter: Waiter<Self::Lock, Self::Request>,
        end: Ended<Self::Grant, Self::Error>,
    );

    /// A waiter was removed from this queue without a grant. Waiters behind it may get in
    /// now, so the implementor serves the queue soon, unless it is empty.
    fn queue_shortened(&mut self, lock: &Self::Lock);
}

/// The result of an attempt to grant.
#[derive(Debug)]
pub enum Attempt<G, E> {
    /// The waiter was granted this.
    Granted(G),
    /// The request fails.
    Failed(E),
    /// The waiter has to go on waiting.
    NotYet,
}

/// How a wait ends.
#[derive(Debug)]
pub enum Ended<G, E> {
    /// The waiter was granted this.
    Granted(G),
    /// The waiter's request failed.
    Failed(E),
    /// These owners wait for each other. The waiter's own is the first, if it is one of them:
    /// an upgrade can also close a circle of readers that could join the holders before.
    Deadlock(Vec<OwnerId>),
}
