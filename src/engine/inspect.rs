//! Looking without touching.

use super::state::{LockId, Steady, WaitRequest};
use super::{Engine, Error};
use crate::core::{End, Kind, Millis, Mode, WaiterId, Want};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Entry, Held, Reserved, Store};

/// All that can be told of a lock.
pub struct LockInfo {
    /// Its mode; None when it is free.
    pub mode: Option<Mode>,
    /// Its end, when it is held.
    pub end: End,
    /// The holders, an entry for each kind of hold; as many as were asked for.
    pub holders: Vec<Holder>,
    /// How many entries there are.
    pub holders_total: usize,
    /// Who waits, in the order of service; as many as were asked for.
    pub waiters: Vec<WaiterInfo>,
    /// How many wait.
    pub waiters_total: usize,
    /// A writer's reservation.
    pub reserved: Option<Reserved>,
    /// The last fencing token, or 0.
    pub fence: i64,
    /// The time of the look.
    pub now: Millis,
}

/// The holds of one owner and one kind.
pub struct Holder {
    /// Who holds.
    pub owner: Vec<u8>,
    /// The kind of the holds.
    pub kind: Kind,
    /// How many.
    pub holds: u64,
    /// When the last of them ends.
    pub end: End,
    /// A client that one of them is bound to; 0: none is.
    pub session: u64,
}

/// Somebody who waits.
pub struct WaiterInfo {
    /// Who waits.
    pub owner: Vec<u8>,
    /// What for.
    pub want: Want,
    /// For how many ms.
    pub waited: Millis,
    /// For how many ms more at most, 1 or more; None: without end.
    pub timeout: Option<Millis>,
    /// The client.
    pub client: u64,
}

/// A lock that clients wait for.
pub struct QueueLength {
    /// The lock.
    pub name: Vec<u8>,
    /// How many wait.
    pub waiters: usize,
    /// For how many ms the first of them has waited.
    pub oldest: Millis,
}

impl Engine {
    /// INSPECT: at most `count` holders and waiters.
    pub fn inspect(&self, ctx: Ctx<'_>, key: &Str, count: usize) -> Result<LockInfo, Error> {
        let store = Store::open(ctx.db(), key, Access::Read)?;
        let (end, entries) = store.holders()?.unwrap_or((End::Never, Vec::new()));
        let queue = self.waits.queue(&store.lock());
        let reserved = store.reservation()?;
        let place = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
        let in_order = queue.map(|queue| queue.in_order(self.settings.policy, place));
        let in_order = in_order.unwrap_or_default();
        let now = Steady::now(ctx);
        let holder = |entry: Entry| {
            let mut holder = holder(entry, end);
            holder.session = self.session_of(store.lock(), &holder.owner, holder.kind);
            holder
        };
        Ok(LockInfo {
            mode: mode(&entries),
            end,
            holders_total: entries.len(),
            holders: entries.into_iter().take(count).map(holder).collect(),
            waiters_total: in_order.len(),
            waiters: in_order
                .iter()
                .take(count)
                .filter_map(|(id, ..)| self.waiter(*id, now))
                .collect(),
            reserved,
            fence: store.last_token()?,
            now: store.now(),
        })
    }

    /// QUEUES: the longest queues of a database first, at most `count`. The
    /// server cannot check keys that nobody named: it is done here.
    pub fn queues(&self, ctx: Ctx<'_>, count: usize) -> Vec<QueueLength> {
        let now = Steady::now(ctx);
        let db = ctx.db().number();
        let locks = self.waits.locks().filter(|lock| lock.db == db);
        let length = |lock: &LockId| {
            let queue = self.waits.queue(lock)?;
            let since = queue.first_arrival().and_then(|id| self.waits.get(id))?.request.since;
            let oldest = now.since(since);
            Some(QueueLength { name: lock.name.to_vec(), waiters: queue.len(), oldest })
        };
        let mut queues: Vec<_> = locks.filter_map(length).collect();
        queues.sort_by(|one, other| {
            (other.waiters, other.oldest, &one.name).cmp(&(one.waiters, one.oldest, &other.name))
        });
        let user = ctx.user();
        queues.into_iter().filter(|queue| user.may_read(&queue.name)).take(count).collect()
    }

    fn waiter(&self, id: WaiterId, now: Steady) -> Option<WaiterInfo> {
        let waiter = self.waits.get(id)?;
        let WaitRequest { since, until, client, .. } = waiter.request;
        Some(WaiterInfo {
            owner: waiter.owner.to_vec(),
            want: waiter.want(),
            waited: now.since(since),
            timeout: until.map(|(until, _)| until.since(now).max(1)),
            client,
        })
    }
}

fn mode(entries: &[Entry]) -> Option<Mode> {
    if entries.iter().any(|entry| matches!(entry.held, Held::Writes(_))) {
        Some(Mode::Write)
    } else {
        (!entries.is_empty()).then_some(Mode::Read)
    }
}

fn holder(Entry { owner, held }: Entry, lock_end: End) -> Holder {
    match held {
        Held::Reads(ends) => Holder {
            owner,
            kind: Kind::Read,
            holds: ends.len() as u64,
            end: ends.into_iter().max().unwrap_or(lock_end),
            session: 0,
        },
        Held::Writes(holds) => {
            Holder { owner, kind: Kind::Write, holds, end: lock_end, session: 0 }
        }
    }
}

impl Engine {
    /// How many clients wait.
    pub fn waiters_now(&self) -> usize {
        self.waits.len()
    }

    /// For how many locks.
    pub fn queues_now(&self) -> usize {
        self.waits.queue_count()
    }

    /// How many holds are bound to a connection.
    pub fn session_holds_now(&self) -> usize {
        self.tracked.sessions()
    }
}
