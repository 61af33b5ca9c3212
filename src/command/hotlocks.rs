//! `RWLOCK.HOTLOCKS [COUNT n | RESET]`

use super::dangerous::count_or_reset;
use super::docs::{one_of, COUNT_ONLY, RESET};
use super::{run, Args, Command, Error, SINCE};
use crate::engine::HotLockInfo;
use crate::ffi::{CommandDocs, Ctx, Keys, Reply};

/// Lists the locks that were waited for longest, or forgets them. Locks that the user may not read
/// are left out.
pub struct HotLocks;

/// How many locks are listed without COUNT.
const DEFAULT_COUNT: usize = 10;

impl Command for HotLocks {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.hotlocks",
        summary: "Lists the locks that were waited for longest, or forgets them",
        complexity: "O(N*log(N)) with N the locks that were waited for, at most 1000",
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
                engine.reset_hot_locks();
                Ok(())
            })?;
            return Ok(Reply::Ok);
        };
        let locks = run(ctx, |engine| Ok(engine.hot_locks(ctx, count)))?;
        Ok(Reply::Array(locks.into_iter().map(row).collect()))
    }
}

fn row(HotLockInfo { name, db, figures }: HotLockInfo) -> Reply {
    let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    Reply::Map(vec![
        ("key", Reply::Bulk(name)),
        ("db", Reply::Integer(db.into())),
        ("waits", number(figures.waits)),
        ("total", number(figures.total)),
        ("max", number(figures.max)),
        ("timeouts", number(figures.timeouts)),
        ("deadlocks", number(figures.deadlocks)),
    ])
}
