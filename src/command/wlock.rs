//! `RWLOCK.WLOCK key owner lease [ONCE] [RESERVE ms]`

use super::docs::{KEY, LEASE, ONCE, OWNER, RESERVE};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Kind;
use crate::engine;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Reply};

/// Takes a write hold.
pub struct Wlock;

impl Command for Wlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.wlock",
        summary: "Takes a write (exclusive) hold on a lock",
        complexity: "O(N) with N the read holds that the owner has already",
        since: SINCE,
        flags: "write deny-oom fast",
        arity: -4,
        key: KeyUse::Update,
        args: &[KEY, OWNER, LEASE, ONCE, RESERVE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        let ask = request::parse(args, Kind::Write)?;
        Ok(request::reply(engine::acquire(ctx, &ask)?))
    }
}
