//! `RWLOCK.WLOCK key owner lease [BLOCK timeout] [SESSION] [ONCE] [FENCE] [RESERVE ms]`

use super::docs::{BLOCK, FENCE, KEY, LEASE, ONCE, OWNER, RESERVE, SESSION};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Want;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Takes a write hold.
pub struct Wlock;

impl Command for Wlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.wlock",
        summary: "Takes a write (exclusive) hold on a lock",
        complexity: "O(N) with N the read holds that the owner has already",
        since: SINCE,
        flags: "write deny-oom blocking",
        categories: "write slow blocking",
        arity: -4,
        keys: Keys::First(KeyUse::Update),
        args: &[KEY, OWNER, LEASE, BLOCK, SESSION, ONCE, FENCE, RESERVE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        request::run(ctx, args, Want::Write, |answer| request::answer(answer, Self::DOCS.name))
    }
}
