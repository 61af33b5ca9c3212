//! `RWLOCK.DOWNGRADE key owner lease`

use super::docs::{KEY, LEASE, OWNER};
use super::{run, Args, Command, Error, SINCE};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Turns the write holds of an owner into a read hold, in one step.
pub struct Downgrade;

impl Command for Downgrade {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.downgrade",
        summary: "Turns the writer of a lock into a reader",
        complexity: "O(N) with N the read holds of the owner",
        since: SINCE,
        flags: "write fast",
        categories: "write fast",
        arity: 4,
        keys: Keys::First(KeyUse::Update),
        args: &[KEY, OWNER, LEASE],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let (key, owner, lease) = (args.next()?, args.next()?, args.millis()?);
        args.finish()?;
        run(ctx, |engine| engine.downgrade(ctx, key, owner, lease))?;
        Ok(Reply::Ok)
    }
}
