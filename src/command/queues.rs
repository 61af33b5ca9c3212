//! `RWLOCK.QUEUES [COUNT n]`

use super::docs::COUNT;
use super::inspect::count_option;
use super::{run, Args, Command, Error, SINCE};
use crate::ffi::{CommandDocs, Ctx, Keys, Reply};

/// Lists the locks that have waiters. Locks that the user may not read are left out.
pub struct Queues;

impl Command for Queues {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.queues",
        summary: "Lists the locks that clients wait for, longest queue first",
        complexity: "O(N*log(N)) with N the number of waiters",
        since: SINCE,
        flags: "readonly",
        categories: "read slow",
        arity: -1,
        keys: Keys::None,
        args: &[COUNT],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let count = count_option(&mut args)?;
        args.finish()?;
        let queues = run(ctx, |engine| Ok(engine.queues(ctx, count)))?;
        let row = |queue: crate::engine::QueueLength| {
            Reply::Map(vec![
                ("key", Reply::Bulk(queue.name)),
                ("waiters", Reply::Integer(queue.waiters as i64)),
                ("oldest", Reply::Integer(queue.oldest)),
            ])
        };
        Ok(Reply::Array(queues.into_iter().map(row).collect()))
    }
}
