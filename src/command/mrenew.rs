//! `RWLOCK.MRENEW owner lease key [key ...]`

use super::docs::{KEYS, LEASE, OWNER};
use super::error::MAX_LOCKS;
use super::{run, Args, Command, Error, SINCE};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Lengthens the leases of an owner's holds on several locks.
pub struct Mrenew;

impl Command for Mrenew {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.mrenew",
        summary: "Lengthens the lease of every live hold of an owner on several locks",
        complexity: "O(N) with N the locks, and the read holds of the owner",
        since: SINCE,
        flags: "write",
        categories: "write slow",
        arity: -4,
        keys: Keys::From(3, KeyUse::Update),
        args: &[OWNER, LEASE, KEYS],
    };

    fn run(ctx: Ctx<'_>, mut args: Args<'_>) -> Result<Reply, Error> {
        let (owner, lease, keys) = (args.next()?, args.millis()?, args.rest()?);
        if keys.len() > MAX_LOCKS {
            return Err(Error::TooManyLocks);
        }
        let renewed = run(ctx, |engine| engine.renew_joint(ctx, owner, lease, keys))?;
        Ok(Reply::Array(renewed.into_iter().map(|held| Reply::Integer(held.into())).collect()))
    }
}
