//! INSPECT, QUEUES and the counts for INFO. They change nothing.

use super::state::{self, LockId, Steady, WaitRequest};
use super::{Engine, Error};
use crate::core::{End, Kind, Millis, Mode, WaiterId, Want};
use crate::ffi::{Access, Ctx, Str};
use crate::store::{Entry, Held, Reserved, Store};

/// All that INSPECT shows of a lock.
pub struct LockInfo {
    /// The mode. None: the lock is free.
    pub mode: Option<Mode>,
    /// The end of the lock. Only meaningful while it is held.
    pub end: End,
    /// For how many ms the lock has been held. Only meaningful while it is held. None: unknown.
    pub held: Option<Millis>,
    /// The first holders, as many as were asked for. Each owner has one entry per kind of hold.
    pub holders: Vec<Holder>,
    /// The number of entries of all holders.
    pub holders_total: usize,
    /// The first waiters in the order of service, as many as were asked for.
    pub waiters: Vec<WaiterInfo>,
    /// The number of all waiters.
    pub waiters_total: usize,
    /// The reservation of a polling writer, if there is one.
    pub reserved: Option<Reserved>,
    /// The last fencing token. 0: none was handed out.
    pub fence: i64,
    /// The time of the snapshot, as unix time in ms.
    pub now: Millis,
}

/// The holds of one owner and one kind.
pub struct Holder {
    pub owner: Vec<u8>,
    pub kind: Kind,
    /// The number of live holds.
    pub holds: u64,
    /// The end of the hold that ends last.
    pub end: End,
    /// The id of a client that one of the holds is bound to. 0: none is bound.
    pub session: u64,
    /// The name of that client's connection. Empty: none.
    pub name: Vec<u8>,
}

/// A waiter, as INSPECT shows it.
pub struct WaiterInfo {
    pub owner: Vec<u8>,
    /// The kind of hold that it waits for.
    pub want: Want,
    /// For how many ms it has waited.
    pub waited: Millis,
    /// The ms until it times out, 1 or more. None: it waits without a limit.
    pub timeout: Option<Millis>,
    /// The id of its client.
    pub client: u64,
    /// The name of the client's connection. Empty: none.
    pub name: Vec<u8>,
    /// The number of locks that it waits for.
    pub locks: usize,
}

/// The queue of one lock, as QUEUES shows it.
pub struct QueueLength {
    /// The name of the lock.
    pub name: Vec<u8>,
    /// The number of waiters.
    pub waiters: usize,
    /// For how many ms the first of the waiters has waited.
    pub oldest: Millis,
}

impl Engine {
    /// Runs INSPECT: lists at most `count` holders and `count` waiters.
    pub fn inspect(&self, ctx: Ctx<'_>, key: &Str, count: usize) -> Result<LockInfo, Error> {
        let store = Store::open(ctx.db(), key, Access::Read)?;
        let (end, entries) = store.holders()?.unwrap_or((End::Never, Vec::new()));
        let queue = self.waits.queue(&store.lock());
        let reserved = store.reservation()?;
        let reserved_by = reserved.as_ref().map(|reserved| reserved.owner.as_slice());
        let in_order = queue.map(|queue| queue.in_order(self.settings.policy, reserved_by));
        let in_order = in_order.unwrap_or_default();
        let now = Steady::now(ctx);
        let holder = |entry: Entry| {
            let mut holder = holder(entry, end);
            holder.session = self.session_of(store.lock(), &holder.owner, holder.kind);
            if holder.session != 0 {
                holder.name = ctx.client_name(holder.session);
            }
            holder
        };
        Ok(LockInfo {
            mode: mode(&entries),
            end,
            held: self.held(ctx, store.lock()).and_then(state::Held::exactly),
            holders_total: entries.len(),
            holders: entries.into_iter().take(count).map(holder).collect(),
            waiters_total: in_order.len(),
            waiters: in_order
                .iter()
                .take(count)
                .filter_map(|(id, want, _)| self.waiter(ctx, *id, *want, now))
                .collect(),
            reserved,
            fence: store.last_token()?,
            now: store.now(),
        })
    }

    /// Runs QUEUES: lists at most `count` queues of the client's database, the longest first. The
    /// command names no keys, so the server cannot check the user's rights to them. This method
    /// lists only locks that the user may read.
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

    fn waiter(&self, ctx: Ctx<'_>, id: WaiterId, want: Want, now: Steady) -> Option<WaiterInfo> {
        let waiter = self.waits.get(id)?;
        let WaitRequest { since, until, client, .. } = waiter.request;
        Some(WaiterInfo {
            owner: waiter.owner.to_vec(),
            want,
            waited: now.since(since),
            timeout: until.map(|(until, _)| until.since(now).max(1)),
            client,
            name: ctx.client_name(client),
            locks: waiter.places.len(),
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
            name: Vec::new(),
        },
        Held::Writes(holds) => {
            Holder { owner, kind: Kind::Write, holds, end: lock_end, session: 0, name: Vec::new() }
        }
    }
}

impl Engine {
    /// The number of waiters.
    pub fn waiters_now(&self) -> usize {
        self.waits.len()
    }

    /// The number of locks that have waiters.
    pub fn queues_now(&self) -> usize {
        self.waits.queue_count()
    }

    /// The number of holds that are bound to a connection.
    pub fn session_holds_now(&self) -> usize {
        self.tracked.sessions()
    }
}
