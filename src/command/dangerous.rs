//! Words that make a command dangerous. A module's command has the same ACL categories whatever its
//! words are: the server has subcommands of modules, but a command with subcommands cannot run
//! without one. So the command itself asks whether its user may run such a word.

use super::definition::Command;
use super::forceunlock::ForceUnlock;
use super::Error;
use crate::ffi::Ctx;

/// Fails if the user may not run the module's command that is `@dangerous`, FORCEUNLOCK. The keys
/// that the user may use do not matter. `word`: the word in lower case, for the error.
pub fn require_dangerous(ctx: Ctx<'_>, word: &'static str) -> Result<(), Error> {
    match ctx.user().may_run(ForceUnlock::DOCS.name) {
        true => Ok(()),
        false => Err(Error::NotPermitted(word)),
    }
}
