//! What goes into the log (RWLOCK.LOG), and the lines for the server's own log.

use super::state::{
    Blocker, Connection, Cut, Event, LogEntry, Record, Steady, WaitEnd, Waiter, MOST_BLOCKERS,
};
use super::transaction::LockTxn;
use super::Engine;
use crate::core::wait::Place;
use crate::core::{Kind, Lock, Millis, Mode, Others, OwnerId, WaiterId, Want};
use crate::ffi::Ctx;
use crate::store::{LockRef, Snapshot, Store};

/// How many deadlocks get a line in the server's log within a second.
const MOST_LINES: u32 = 10;

/// How many bytes of a connection's name an entry keeps.
const MOST_NAME: usize = 128;

impl Engine {
    /// The newest entries, at most so many, the newest first. Only those of locks that the user may
    /// read: if a name was cut, all that begin like it.
    pub fn log_entries(&self, ctx: Ctx<'_>, count: usize) -> Vec<LogEntry> {
        let user = ctx.user();
        let may_read = |Cut { bytes, more }: &Cut| match more {
            0 => user.may_read(bytes),
            _ => user.may_read_all_from(bytes),
        };
        let shown = self.log.newest().filter(|entry| may_read(&entry.record.key));
        shown.take(count).cloned().collect()
    }

    /// Drops all entries of the log.
    pub fn reset_log(&mut self) {
        self.log.reset();
    }

    /// Whether anything is logged.
    pub(super) fn logs(&self) -> bool {
        self.settings.log_slower_than >= 0 && self.settings.log_max_len > 0
    }

    /// Logs the end of a wait, if that is to be logged. `waited` is in ms.
    pub(super) fn log_wait(
        &mut self,
        ctx: Ctx<'_>,
        waiter: &Waiter,
        end: &WaitEnd,
        waited: Millis,
    ) {
        let mut detail = String::new();
        let event = match end {
            WaitEnd::Granted(_) => Event::Wait,
            WaitEnd::Lost | WaitEnd::Disconnected => Event::Disconnect,
            WaitEnd::TimedOut => Event::Timeout,
            WaitEnd::Unblocked => {
                detail = "by CLIENT UNBLOCK".into();
                Event::Timeout
            }
            WaitEnd::Denied(error) | WaitEnd::Failed(error) => match error.circle() {
                Some(circle) => {
                    detail = circle;
                    self.say_deadlock(ctx, waiter, &detail);
                    Event::Deadlock
                }
                None => return,
            },
        };
        let only_if_slow = matches!(event, Event::Wait | Event::Disconnect);
        if !self.logs() || only_if_slow && waited < self.settings.log_slower_than {
            return;
        }
        let Some(place) = waiter.places.first() else {
            return;
        };
        let mut blockers: Vec<&Blocker> = waiter.request.blockers.iter().collect();
        blockers.sort_by_key(|blocker| !blocker.holds);
        let shown = |blocker: &Blocker| (Cut::of(&blocker.owner), blocker.want, blocker.holds);
        let several = match waiter.places.len() {
            0 | 1 => String::new(),
            locks => format!("the first of {locks} locks"),
        };
        let separator = if detail.is_empty() || several.is_empty() { "" } else { "; " };
        let record = Record {
            waited,
            client: connection(ctx, waiter.request.client),
            blockers: blockers.into_iter().take(MOST_BLOCKERS).map(shown).collect(),
            detail: detail + separator + &several,
            ..record(event, place.lock.get(), &waiter.owner, Some(place.want))
        };
        self.add_to_log(ctx, record);
    }

    /// Logs that a hold has ended, other than by its owner's will. `owner`: None: it is not known.
    /// `held`: for how many ms the lock was held, if it has ended.
    pub(super) fn log_ended(
        &mut self,
        store: &Store<'_>,
        event: Event,
        owner: Option<&[u8]>,
        want: Want,
        held: Millis,
    ) {
        if self.logs() {
            let owner = owner.unwrap_or_default();
            let record = Record { held, ..record(event, store.lock(), owner, Some(want)) };
            self.add_to_log(store.ctx(), record);
        }
    }

    /// Logs that a lock is free that was held for long. `held` is in ms.
    pub(super) fn log_hold(
        &mut self,
        ctx: Ctx<'_>,
        lock: LockRef<'_>,
        owner: Option<&[u8]>,
        held: Millis,
    ) {
        let record = record(Event::Hold, lock, owner.unwrap_or_default(), None);
        self.add_to_log(ctx, Record { held, ..record });
    }

    /// Logs that a session hold was given back. `client`: the connection that closed.
    pub(super) fn log_session(&mut self, store: &Store<'_>, owner: &[u8], kind: Kind, client: u64) {
        if self.logs() {
            let client = Connection { id: client, ..Connection::default() };
            let want = match kind {
                Kind::Read => Want::Read,
                Kind::Write => Want::Write,
            };
            let record = record(Event::Session, store.lock(), owner, Some(want));
            self.add_to_log(store.ctx(), Record { client, ..record });
        }
    }

    /// Logs the holds that have lapsed in a snapshot for `owner`, one entry for each owner.
    #[cold]
    pub(super) fn log_lapsed(&mut self, store: &Store<'_>, snapshot: &Snapshot, owner: &[u8]) {
        if self.logs() {
            let own = snapshot.has_own_lapsed().then_some(owner);
            for owner in snapshot.lapsed_readers().chain(own) {
                self.log_ended(store, Event::Lapse, Some(owner), Want::Read, 0);
            }
        }
    }

    pub(super) fn add_to_log(&mut self, ctx: Ctx<'_>, record: Record) {
        self.log.add(ctx.clock(), record, self.settings.log_max_len);
    }

    /// Writes a line about a deadlock to the server's log, unless there were too many just now.
    fn say_deadlock(&mut self, ctx: Ctx<'_>, waiter: &Waiter, why: &str) {
        let Some(Place { lock, .. }) = waiter.places.first() else {
            return;
        };
        let (now, lines) = (Steady::now(ctx), &mut self.lines);
        if lines.since.is_none_or(|since| now.since(since) >= 1_000) {
            (lines.since, lines.written) = (Some(now), 0);
        }
        if lines.written == MOST_LINES {
            lines.left_out += 1;
            return;
        }
        lines.written += 1;
        let left_out = match std::mem::take(&mut lines.left_out) {
            0 => String::new(),
            count => format!(" ({count} more before this one)"),
        };
        let name = shown(&lock.name);
        let (db, client) = (lock.db, waiter.request.client);
        ctx.notice(&format!(
            "deadlock at lock {name} in database {db}, client {client}: {why}{left_out}"
        ));
    }

    /// Whom a FORCEUNLOCK will throw out: at most one more than the log has room for.
    pub(super) fn thrown_out(&self, store: &Store<'_>) -> Vec<(OwnerId, Want)> {
        self.some_holders(store, b"", MOST_BLOCKERS + 1)
    }

    /// Logs a FORCEUNLOCK, also in the server's log. `holders`: whom it threw out.
    pub(super) fn log_forced(
        &mut self,
        store: &Store<'_>,
        holders: &[(OwnerId, Want)],
        held: Millis,
    ) {
        let ctx = store.ctx();
        let client = ctx.client_id().map(|id| connection(ctx, id)).unwrap_or_default();
        let names = holders.iter().take(MOST_BLOCKERS);
        let names = names.map(|(owner, want)| format!("{} ({})", shown(owner), word(*want)));
        let mut names = names.collect::<Vec<_>>().join(", ");
        if holders.len() > MOST_BLOCKERS {
            names += " and others";
        }
        let lock = store.lock();
        let user = ctx.user_name().map_or("nobody".into(), |name| shown(name.bytes()));
        ctx.notice(&format!(
            "FORCEUNLOCK of lock {} in database {} by user {user}, client {} {}: \
             it was held by {names}",
            shown(lock.name),
            lock.db,
            client.id,
            client.address,
        ));
        if self.logs() {
            let first = holders.first();
            let owner = first.map_or(&[][..], |(owner, _)| owner);
            let record = Record {
                held,
                client,
                detail: format!("by user {user}; held by {names}"),
                ..record(Event::Forced, lock, owner, first.map(|(_, want)| *want))
            };
            self.add_to_log(ctx, record);
        }
    }
}

impl LockTxn<'_, '_> {
    /// Notes what stands in the way of a new waiter here. `lock`: the lock as its owner sees it.
    pub(super) fn note_blockers(&mut self, id: WaiterId, want: Want, lock: &Lock) {
        let LockTxn { engine, store, .. } = self;
        if !engine.logs() {
            return;
        }
        let Some(waiter) = engine.waits.get(id) else {
            return;
        };
        let of_kind = |holds: bool| {
            let all = waiter.request.blockers.iter();
            MOST_BLOCKERS - all.filter(|blocker| blocker.holds == holds).count().min(MOST_BLOCKERS)
        };
        let mut blockers = Vec::new();
        if lock.others != Others::None {
            let owner = waiter.owner.as_ref();
            let holders = engine.some_holders(store, owner, of_kind(true));
            let blocker = |(owner, want)| Blocker { owner, want, holds: true };
            blockers.extend(holders.into_iter().map(blocker));
        }
        if let Some(queue) = engine.waits.queue(&store.lock()) {
            let ahead = queue.ahead(id, want, engine.settings.policy, of_kind(false));
            let blocker = |(want, owner)| Blocker { owner, want, holds: false };
            blockers.extend(ahead.into_iter().map(blocker));
        }
        if let Some(request) = engine.waits.request_mut(id) {
            request.blockers.append(&mut blockers);
        }
    }
}

impl Engine {
    /// Some holders of a lock other than `owner`, at most so many, each with the kind of its hold.
    /// A hold that lapsed just now may be among them.
    fn some_holders(&self, store: &Store<'_>, owner: &[u8], limit: usize) -> Vec<(OwnerId, Want)> {
        let queue = self.waits.queue(&store.lock());
        if let Some(writer) = queue.and_then(|queue| queue.only_holder()) {
            return vec![(writer.clone(), Want::Write)];
        }
        let readers = self.memory.get(store.lock()).and_then(|known| known.readers.as_ref());
        if let Some(readers) = readers {
            let others = readers.owners().filter(|reader| ***reader != *owner);
            return others.take(limit).map(|reader| (reader.clone(), Want::Read)).collect();
        }
        let holders = store.some_holders(limit + 1).unwrap_or_default();
        let others = holders.into_iter().filter(|(holder, _)| holder != owner);
        let want = |mode| if mode == Mode::Read { Want::Read } else { Want::Write };
        others.take(limit).map(|(holder, mode)| (holder.into(), want(mode))).collect()
    }
}

fn record(event: Event, lock: LockRef<'_>, owner: &[u8], want: Option<Want>) -> Record {
    Record {
        event,
        db: lock.db,
        key: Cut::of(lock.name),
        owner: Cut::of(owner),
        want,
        waited: 0,
        held: 0,
        client: Connection::default(),
        blockers: Vec::new(),
        detail: String::new(),
    }
}

fn connection(ctx: Ctx<'_>, id: u64) -> Connection {
    let address = ctx.client_address(id).unwrap_or_default();
    let mut name = ctx.client_name(id);
    name.truncate(MOST_NAME);
    Connection { id, address, name }
}

/// A name as the server's log shows it.
fn shown(name: &[u8]) -> String {
    let Cut { bytes, more } = Cut::of(name);
    let dots = if more > 0 { "..." } else { "" };
    format!("\"{}{dots}\"", bytes.escape_ascii())
}

fn word(want: Want) -> &'static str {
    match want {
        Want::Upgrade => "upgrade",
        Want::Read => "read",
        Want::Write => "write",
    }
}
