//! How often the engine checks or retries what no event reports. All times are in ms.

use crate::core::{Millis, Mode};
use crate::store::Store;

/// The first check of a lock after a waiter entered its queue. The change that frees the lock may
/// have come just before.
pub(super) const AFTER_WAIT_BEGAN: Millis = 50;

/// How long before a lock lapses it is read, so that the log can name its owner. Much longer than
/// the server's timers are late, also on a busy machine. Of a shorter lease the owner is noted with
/// the grant.
pub(super) const BEFORE_LAPSE: Millis = 100;

/// The check of a lock with waiters. No event reports an overwritten key or a slot that moves.
const QUEUE: Millis = 1_000;

/// With many such locks, two checks are at least this far apart on average.
const QUEUES_APART: Millis = 5;

/// The check of a lock with waiters whose writer also reads. A script can downgrade it by changing
/// one field of the hash, and no event reports that.
const WRITER_THAT_READS: Millis = 50;

/// The check of a lock with waiters that may be free but is reserved. SET with KEEPTTL can give the
/// reservation to another owner, and the module follows no event that reports it.
pub(super) const RESERVED: Millis = 8;

/// With many such locks, at most this many checks in a ms.
const RESERVED_IN_MS: usize = 25;

/// The retry of a grant while the server would refuse a command's write.
const REFUSED_GRANT: Millis = 10;

/// With many such locks, at most this many retries in a ms.
const REFUSED_GRANTS_IN_MS: usize = 10;

/// The retry of work that ended in a panic. It is long enough that the log does not fill up if the
/// work panics each time.
pub(super) const AFTER_PANIC: Millis = 100;

/// The retry of all due work while the server takes no writes.
pub(super) const NO_WRITES: Millis = 10;

/// The retry of a session hold's renewal while the server would refuse it.
pub(super) const REFUSED_RENEWAL: Millis = 100;

/// The retry of a return that failed, because the slot moves or the cluster is down.
pub(super) const REFUSED_RETURN: Millis = 100;

/// The retry of a lock that this node does not serve now but may serve again.
pub(super) const UNSERVED_LOCK: Millis = 500;

/// The pause between two rounds over all locks that arrived while this node did not serve them.
pub(super) const UNSERVED_ROUND: Millis = 100;

/// The pause in such a round when a pass was too short for it.
pub(super) const UNSERVED_PAUSE: Millis = 10;

/// The pause between two steps of the sweep. It keeps the sweep well below a tenth of the server's
/// time.
pub(super) const SWEEP_PAUSE: Millis = 10;

/// The pause between two steps of the sweep while the cluster is down.
pub(super) const SWEEP_PAUSE_DOWN: Millis = 100;

/// The ms until the next check of a lock in this mode with waiters. `queues` is the number of locks
/// with waiters.
pub(super) fn of_queue(queues: usize, store: &Store<'_>, mode: Option<Mode>) -> Millis {
    if mode == Some(Mode::Write) && store.field_count() > 2 {
        return WRITER_THAT_READS;
    }
    let to_millis = |queues| Millis::try_from(queues).unwrap_or(Millis::MAX);
    // Behind a writer the reservation does not matter yet.
    if mode != Some(Mode::Write) && matches!(store.reservation(), Ok(Some(_))) {
        return to_millis(queues / RESERVED_IN_MS).clamp(RESERVED, QUEUE);
    }
    to_millis(queues).saturating_mul(QUEUES_APART).max(QUEUE)
}

/// The ms until a refused grant is tried again. `queues` is the number of locks with waiters.
pub(super) fn of_refused_grant(queues: usize) -> Millis {
    let apart = Millis::try_from(queues / REFUSED_GRANTS_IN_MS).unwrap_or(QUEUE);
    apart.clamp(REFUSED_GRANT, QUEUE)
}
