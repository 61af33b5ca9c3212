//! `RWLOCK.RLOCK key owner lease [ONCE]`

use super::docs::{KEY, LEASE, ONCE, OWNER};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Kind;
use crate::engine;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Reply};

/// Takes a read hold.
pub struct Rlock;

impl Command for Rlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.rlock",
        summary: "Takes a read (shared) hold on a lock",
        complexity: "O(N) with N the read holds that the owner has already",
        since: SINCE,
        flags: "write deny-oom fast",
        arity: -4,
        key: KeyUse::Update,
        args: &[KEY, OWNER, LEASE, ONCE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        let ask = request::parse(args, Kind::Read)?;
        Ok(request::reply(engine::acquire(ctx, &ask)?))
    }
}
