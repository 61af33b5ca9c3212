//! `RWLOCK.UPGRADE key owner lease`

use super::docs::{KEY, LEASE, OWNER};
use super::{request, Args, Command, Error, SINCE};
use crate::engine;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Reply};

/// Goes from read to write with no gap.
pub struct Upgrade;

impl Command for Upgrade {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.upgrade",
        summary: "Turns the only reader of a lock into its writer",
        complexity: "O(N) with N the read holds of the owner",
        since: SINCE,
        flags: "write deny-oom fast",
        arity: 4,
        key: KeyUse::Update,
        args: &[KEY, OWNER, LEASE],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let (key, owner, lease) = (args.next()?, args.next()?, args.millis()?);
        args.finish()?;
        Ok(request::reply(engine::upgrade(ctx, key, owner, lease)?))
    }
}
