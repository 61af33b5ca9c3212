//! `RWLOCK.FORCEUNLOCK key [READ | WRITE]`

use super::docs::{one_of, KEY, READ, WRITE};
use super::{run, Args, Command, Error, SINCE};
use crate::core::Mode;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Removes a lock with all its holds and its reservation, of any owner.
pub struct ForceUnlock;

impl Command for ForceUnlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.forceunlock",
        summary: "Removes a lock with all its holds and its reservation",
        complexity: "O(N) with N the holds on the lock",
        since: SINCE,
        flags: "write",
        categories: "write slow dangerous",
        arity: -2,
        keys: Keys::First(KeyUse::Delete),
        args: &[KEY, one_of("mode", &[READ, WRITE])],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let key = args.next()?;
        let only = match args.word().as_deref() {
            None => None,
            Some(b"READ") => Some(Mode::Read),
            Some(b"WRITE") => Some(Mode::Write),
            Some(_) => return Err(args.syntax()),
        };
        args.finish()?;
        Ok(Reply::Integer(run(ctx, |engine| engine.force(ctx, key, only))?.into()))
    }
}
