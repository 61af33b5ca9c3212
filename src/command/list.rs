//! `RWLOCK.LIST cursor [MATCH pattern] [HELD milliseconds] [COUNT count]`

use super::docs::{COUNT, CURSOR, HELD, MATCH};
use super::error::word;
use super::inspect::{held, remaining};
use super::{run, Args, Command, Error, SINCE};
use crate::engine::{ListRequest, Listed};
use crate::ffi::{CommandDocs, Ctx, Keys, Reply};

/// Lists the locks that are held. Locks that the user may not read are left out.
pub struct List;

/// How many locks a call looks at without COUNT, as for SCAN.
const DEFAULT_COUNT: usize = 10;

impl Command for List {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.list",
        summary: "Lists the locks that are held, a part at each call",
        complexity: "O(N) with N the COUNT for each call, or all held locks for all calls",
        since: SINCE,
        flags: "readonly",
        categories: "read slow",
        arity: -2,
        keys: Keys::None,
        args: &[CURSOR, MATCH, HELD, COUNT],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let cursor = args.cursor()?;
        let (mut pattern, mut held, mut count) = (None, None, None);
        while let Some(word) = args.word() {
            match word.as_slice() {
                b"MATCH" if pattern.is_none() => pattern = Some(args.next()?.bytes()),
                b"HELD" if held.is_none() => held = Some(args.elapsed()?),
                b"COUNT" if count.is_none() => count = Some(args.count()?),
                _ => return Err(args.syntax()),
            }
        }
        let count = count.unwrap_or(DEFAULT_COUNT);
        let request = ListRequest { cursor, pattern, held, count };
        let page = run(ctx, |engine| engine.list(ctx, &request))?;
        let row = |lock: Listed| {
            Reply::Map(vec![
                ("key", Reply::Bulk(lock.name)),
                ("mode", Reply::Bulk(word(lock.mode).into())),
                ("holders", Reply::Integer(lock.holders as i64)),
                ("waiters", Reply::Integer(lock.waiters as i64)),
                ("ttl", remaining(lock.end, page.now)),
                ("held", self::held(lock.held)),
            ])
        };
        let cursor = Reply::Bulk(page.cursor.to_string().into_bytes());
        Ok(Reply::Array(vec![cursor, Reply::Array(page.locks.into_iter().map(row).collect())]))
    }
}
