//! `RWLOCK.INSPECT key [COUNT n]`

use super::docs::{COUNT, KEY};
use super::error::word;
use super::{run, Args, Command, Error, SINCE};
use crate::core::{End, Kind, Millis, Want};
use crate::engine::{Holder, LockInfo, WaiterInfo};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Shows the state of a lock.
pub struct Inspect;

/// How many holders, and how many waiters, are listed without COUNT.
const DEFAULT_COUNT: usize = 100;

impl Command for Inspect {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.inspect",
        summary: "Tells a lock's mode, holders, waiters, reservation and last fencing token",
        complexity: "O(N+M*log(M)) with N the holds on the lock and M its waiters",
        since: SINCE,
        flags: "readonly",
        categories: "read slow",
        arity: -2,
        keys: Keys::First(KeyUse::Read),
        args: &[KEY, COUNT],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let key = args.next()?;
        let count = count_option(&mut args)?;
        args.finish()?;
        Ok(info(run(ctx, |engine| engine.inspect(ctx, key, count))?))
    }
}

/// Reads the option `[COUNT n]`, which must be the last one. Without it: [`DEFAULT_COUNT`].
pub fn count_option(args: &mut Args<'_>) -> Result<usize, Error> {
    match args.word().as_deref() {
        None => Ok(DEFAULT_COUNT),
        Some(b"COUNT") => args.count(),
        Some(_) => Err(args.syntax()),
    }
}

fn info(info: LockInfo) -> Reply {
    let now = info.now;
    let (mode, ttl, held) = match info.mode {
        Some(mode) => (word(mode), remaining(info.end, now), held(info.held)),
        None => ("free", Reply::Integer(-2), Reply::Integer(0)),
    };
    Reply::Map(vec![
        ("mode", text(mode)),
        ("ttl", ttl),
        ("held", held),
        ("holders", Reply::Array(info.holders.into_iter().map(|h| holder(h, now)).collect())),
        ("holders_total", Reply::Integer(info.holders_total as i64)),
        ("waiters", Reply::Array(info.waiters.into_iter().map(waiter).collect())),
        ("waiters_total", Reply::Integer(info.waiters_total as i64)),
        ("reserved_by", info.reserved.map_or(Reply::Null, |by| Reply::Bulk(by.owner))),
        ("fence", Reply::Integer(info.fence)),
    ])
}

fn holder(holder: Holder, now: Millis) -> Reply {
    let kind = match holder.kind {
        Kind::Read => "read",
        Kind::Write => "write",
    };
    Reply::Map(vec![
        ("owner", Reply::Bulk(holder.owner)),
        ("kind", text(kind)),
        ("holds", Reply::Integer(i64::try_from(holder.holds).unwrap_or(i64::MAX))),
        ("ttl", remaining(holder.end, now)),
        ("session", client(holder.session)),
        ("name", Reply::Bulk(holder.name)),
    ])
}

fn waiter(waiter: WaiterInfo) -> Reply {
    Reply::Map(vec![
        ("owner", Reply::Bulk(waiter.owner)),
        ("kind", text(kind_of(waiter.want))),
        ("waited", Reply::Integer(waiter.waited)),
        ("timeout", Reply::Integer(waiter.timeout.unwrap_or(0))),
        ("client", client(waiter.client)),
        ("name", Reply::Bulk(waiter.name)),
        ("locks", Reply::Integer(waiter.locks as i64)),
    ])
}

/// What a waiter wants, as replies spell it.
pub fn kind_of(want: Want) -> &'static str {
    match want {
        Want::Upgrade => "upgrade",
        Want::Read => "read",
        Want::Write => "write",
    }
}

fn client(id: u64) -> Reply {
    Reply::Integer(i64::try_from(id).unwrap_or(0))
}

/// For how long a held lock has been held. It is 1 at least, because 0 says that the lock is free.
pub fn held(ms: Option<Millis>) -> Reply {
    Reply::Integer(ms.map_or(-1, |ms| ms.max(1)))
}

/// The ms until an end. -1: it never comes.
pub fn remaining(end: End, now: Millis) -> Reply {
    Reply::Integer(end.remaining(now).unwrap_or(-1))
}

fn text(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}
