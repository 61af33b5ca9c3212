//! Words that make a command dangerous. A module's command has the same ACL categories whatever its
//! words are: the server has subcommands of modules, but a command with subcommands cannot run
//! without one. So the command itself asks whether its user may run such a word.

use super::definition::Command;
use super::forceunlock::ForceUnlock;
use super::{Args, Error};
use crate::ffi::Ctx;

/// Reads all arguments of a command that lists something, or forgets it: `[COUNT n | RESET]`.
/// Without arguments it is `count`. None: RESET, and the user may run it.
pub fn count_or_reset(
    ctx: Ctx<'_>,
    mut args: Args<'_>,
    count: usize,
) -> Result<Option<usize>, Error> {
    let count = match args.word().as_deref() {
        None => Some(count),
        Some(b"COUNT") => Some(args.count()?),
        Some(b"RESET") => None,
        Some(_) => return Err(args.syntax()),
    };
    args.finish()?;
    if count.is_none() {
        require_dangerous(ctx, "reset")?;
    }
    Ok(count)
}

/// Fails if the user may not run the module's command that is `@dangerous`, FORCEUNLOCK. The keys
/// that the user may use do not matter. `word`: the word in lower case, for the error.
fn require_dangerous(ctx: Ctx<'_>, word: &'static str) -> Result<(), Error> {
    match ctx.may_run(ForceUnlock::DOCS.name) {
        true => Ok(()),
        false => Err(Error::NotPermitted(word)),
    }
}
