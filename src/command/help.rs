//! `RWLOCK.HELP`

use super::docs::syntax;
use super::{Args, Command, Error, SINCE, TABLE};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Reply};

/// Lists the commands.
pub struct Help;

impl Command for Help {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.help",
        summary: "Lists the commands of the module",
        complexity: "O(1)",
        since: SINCE,
        flags: "allow-loading allow-stale fast",
        categories: "fast",
        arity: 1,
        key: KeyUse::None,
        args: &[],
    };

    fn run(_: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        args.finish()?;
        Ok(Reply::Array(TABLE.iter().map(|row| Reply::Status(line(&row.docs))).collect()))
    }
}

fn line(docs: &CommandDocs) -> String {
    let words = std::iter::once(docs.name.to_uppercase()).chain(docs.args.iter().map(syntax));
    format!("{} -- {}.", words.collect::<Vec<_>>().join(" "), docs.summary)
}
