//! `RWLOCK.HELP`

use super::docs::syntax;
use super::{Args, Command, Error, SINCE};
use crate::ffi::{CommandDocs, Ctx, Keys, MainThread, Reply};
use std::cell::RefCell;

/// The lines of the reply, one for each command.
static LINES: MainThread<RefCell<Vec<String>>> = MainThread::new(RefCell::new(Vec::new()));

/// Makes the lines from the descriptions of the commands.
pub fn set_lines<'a>(table: impl Iterator<Item = &'a CommandDocs>) {
    LINES.replace(table.map(line).collect());
}

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
        keys: Keys::None,
        args: &[],
    };

    fn run(_: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        args.finish()?;
        Ok(Reply::Array(LINES.borrow().iter().cloned().map(Reply::Status).collect()))
    }
}

fn line(docs: &CommandDocs) -> String {
    let words = std::iter::once(docs.name.to_uppercase()).chain(docs.args.iter().map(syntax));
    format!("{} -- {}.", words.collect::<Vec<_>>().join(" "), docs.summary)
}
