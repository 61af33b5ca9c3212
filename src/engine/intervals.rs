//! How often the engine tries again or checks again what no event tells it, in ms, each
//! with its reason.

use crate::core::{Millis, Mode};
use crate::store::Store;

/// A lock, after a client has begun to wait for it: what freed it may have come in between.
pub(super) const AFTER_WAIT_BEGAN: Millis = 50;

/// A lock that is waited for: no event tells of an overwritten key or of a slot that moves.
const QUEUE: Millis = 1_000;

/// Where many locks are waited for, at least this long between two such checks.
const QUEUES_APART: Millis = 5;

/// A lock that is waited for, and whose writer reads as well: a script's downgrade changes
/// nothing but a field of the hash, which has no event here.
const WRITER_THAT_READS: Millis = 50;

/// A lock that is waited for, and that may be free but for a reservation: SET with KEEPTTL
/// gives it to another owner, and no event that the module follows tells of it.
pub(super) const RESERVED: Millis = 8;

/// Where many locks are waited for, at most this many such checks in a ms.
const RESERVED_IN_MS: usize = 25;

/// A grant that the server would not let a command write now.
const REFUSED_GRANT: Millis = 10;

/// Where many locks are waited for, at most this many such tries in a ms.
const REFUSED_GRANTS_IN_MS: usize = 10;

/// Work that ended in a panic: the log does not fill up if it always does.
pub(super) const AFTER_PANIC: Millis = 100;

/// All that is due, while the server takes no writes.
pub(super) const NO_WRITES: Millis = 10;

/// The renewal of a session hold that the server would refuse now.
pub(super) const REFUSED_RENEWAL: Millis = 100;

/// A hold that could not be given back: its slot moves, or the cluster is down.
pub(super) const REFUSED_RETURN: Millis = 100;

/// A lock that this node does not serve now, and may serve again.
pub(super) const UNSERVED_LOCK: Millis = 500;

/// All locks that arrived while this node did not serve them.
pub(super) const UNSERVED_ROUND: Millis = 100;

/// The rest of such a round that a pass had no time for.
pub(super) const UNSERVED_PAUSE: Millis = 10;

/// The next step of the sweep: together well below a tenth of the server's time.
pub(super) const SWEEP_PAUSE: Millis = 10;

/// The same while the cluster is down.
pub(super) const SWEEP_PAUSE_DOWN: Millis = 100;

/// When a lock in this mode that is waited for is to be checked again, where this many
/// are waited for.
pub(super) fn of_queue(queues: usize, store: &Store<'_>, mode: Option<Mode>) -> Millis {
    if mode == Some(Mode::Write) && store.field_count() > 2 {
        return WRITER_THAT_READS;
    }
    let of = |queues| Millis::try_from(queues).unwrap_or(Millis::MAX);
    // A waiter behind a writer meets the reservation when that one has gone.
    if mode != Some(Mode::Write) && matches!(store.reservation(), Ok(Some(_))) {
        return of(queues / RESERVED_IN_MS).clamp(RESERVED, QUEUE);
    }
    of(queues).saturating_mul(QUEUES_APART).max(QUEUE)
}

/// When a refused grant is tried again, where this many locks are waited for.
pub(super) fn of_refused_grant(queues: usize) -> Millis {
    let apart = Millis::try_from(queues / REFUSED_GRANTS_IN_MS).unwrap_or(QUEUE);
    apart.clamp(REFUSED_GRANT, QUEUE)
}
