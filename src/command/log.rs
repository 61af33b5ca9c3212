//! `RWLOCK.LOG [COUNT n | RESET]`

use super::dangerous::count_or_reset;
use super::docs::{one_of, COUNT_ONLY, RESET};
use super::inspect::kind_of;
use super::{run, Args, Command, Error, SINCE};
use crate::core::Want;
use crate::engine::{Cut, Event, LogEntry, Record};
use crate::ffi::{CommandDocs, Ctx, Keys, Reply};

/// Tells what went slowly or wrong, or forgets it. Locks that the user may not read are left out.
pub struct Log;

/// How many entries are listed without COUNT.
const DEFAULT_COUNT: usize = 10;

impl Command for Log {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.log",
        summary: "Tells which locks were waited for long and what went wrong, or forgets it",
        complexity: "O(N) with N the number of entries in the log",
        since: SINCE,
        flags: "readonly",
        categories: "read slow",
        arity: -1,
        keys: Keys::None,
        args: &[one_of("what", &[COUNT_ONLY, RESET])],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        let Some(count) = count_or_reset(ctx, args, DEFAULT_COUNT)? else {
            run(ctx, |engine| {
                engine.reset_log();
                Ok(())
            })?;
            return Ok(Reply::Ok);
        };
        let entries = run(ctx, |engine| Ok(engine.log_entries(ctx, count)))?;
        Ok(Reply::Array(entries.into_iter().map(entry).collect()))
    }
}

fn entry(LogEntry { id, time, record }: LogEntry) -> Reply {
    let Record { event, db, key, owner, want, waited, held, client, blockers, detail } = record;
    let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let blockers = blockers.into_iter().map(|(owner, want, holds)| {
        Reply::Map(vec![
            ("owner", shown(owner)),
            ("kind", kind(Some(want))),
            ("holding", Reply::Integer(i64::from(holds))),
        ])
    });
    Reply::Map(vec![
        ("id", number(id)),
        ("time", Reply::Integer(time)),
        ("event", text(word(event))),
        ("key", shown(key)),
        ("db", Reply::Integer(db.into())),
        ("owner", shown(owner)),
        ("kind", kind(want)),
        ("waited", Reply::Integer(waited)),
        ("held", Reply::Integer(held)),
        ("client", number(client.id)),
        ("address", Reply::Bulk(client.address.into_bytes())),
        ("name", Reply::Bulk(client.name)),
        ("blockers", Reply::Array(blockers.collect())),
        ("detail", Reply::Bulk(detail.into_bytes())),
    ])
}

fn word(event: Event) -> &'static str {
    match event {
        Event::Wait => "wait",
        Event::Hold => "hold",
        Event::Timeout => "timeout",
        Event::Deadlock => "deadlock",
        Event::Disconnect => "disconnect",
        Event::Lapse => "lapse",
        Event::Session => "session",
        Event::Forced => "forced",
    }
}

/// Empty: it is not known.
fn kind(want: Option<Want>) -> Reply {
    text(want.map_or("", kind_of))
}

/// A key or an owner, as SLOWLOG shows one that it has cut.
fn shown(Cut { bytes, more }: Cut) -> Reply {
    let mut shown = bytes.into_vec();
    if more > 0 {
        shown.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    }
    Reply::Bulk(shown)
}

fn text(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}
