//! `RWLOCK.RENEW key owner lease`

use super::docs::{KEY, LEASE, OWNER};
use super::{run, Args, Command, Error, SINCE};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Lengthens the lease of every live hold of an owner.
pub struct Renew;

impl Command for Renew {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.renew",
        summary: "Lengthens the lease of every live hold of an owner",
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
        run(ctx, |engine| engine.renew(ctx, key, owner, lease))?;
        Ok(Reply::Ok)
    }
}
