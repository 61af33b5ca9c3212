//! `RWLOCK.RLOCK key owner lease [BLOCK timeout] [SESSION] [ONCE]`

use super::docs::{BLOCK, KEY, LEASE, ONCE, OWNER, SESSION};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Want;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Takes a read hold.
pub struct Rlock;

impl Command for Rlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.rlock",
        summary: "Takes a read (shared) hold on a lock",
        complexity: "O(N) with N the read holds that the owner has already",
        since: SINCE,
        flags: "write deny-oom blocking",
        categories: "write slow blocking",
        arity: -4,
        keys: Keys::First(KeyUse::Update),
        args: &[KEY, OWNER, LEASE, BLOCK, SESSION, ONCE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        request::run(ctx, args, Want::Read, |answer| request::answer(answer, Self::DOCS.name))
    }
}
