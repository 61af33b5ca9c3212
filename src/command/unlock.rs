//! `RWLOCK.UNLOCK key owner [READ | WRITE | ALL]`

use super::docs::{one_of, word, KEY, OWNER, READ, WRITE};
use super::{run, Args, Command, Error, SINCE};
use crate::core::{Kind, Which};
use crate::ffi::{Arg, CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Gives back one hold of an owner, or all of them.
pub struct Unlock;

const ALL: Arg = Arg { optional: false, ..word("all", "ALL") };

impl Command for Unlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.unlock",
        summary: "Gives back one hold of an owner, or all of them",
        complexity: "O(N) with N the holds on the lock; O(1) for a write hold and for a lock \
                     that nobody else holds",
        since: SINCE,
        flags: "write fast",
        categories: "write fast",
        arity: -3,
        keys: Keys::First(KeyUse::Delete),
        args: &[KEY, OWNER, one_of("which", &[READ, WRITE, ALL])],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let (key, owner) = (args.next()?, args.next()?);
        let which = match args.word().as_deref() {
            None => Which::Any,
            Some(b"READ") => Which::One(Kind::Read),
            Some(b"WRITE") => Which::One(Kind::Write),
            Some(b"ALL") => Which::All,
            Some(_) => return Err(args.syntax()),
        };
        args.finish()?;
        Ok(Reply::Integer(run(ctx, |engine| engine.release(ctx, key, owner, which))?.into()))
    }
}
