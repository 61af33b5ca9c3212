//! `RWLOCK.UPGRADE key owner lease [BLOCK timeout] [SESSION] [ONCE] [FENCE]`

use super::docs::{BLOCK, FENCE, KEY, LEASE, ONCE, OWNER, SESSION};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Want;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};

/// Gives the only reader of a lock a write hold, in one step.
pub struct Upgrade;

impl Command for Upgrade {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.upgrade",
        summary: "Turns the only reader of a lock into its writer",
        complexity: "O(N) with N the read holds of the owner",
        since: SINCE,
        flags: "write deny-oom blocking",
        categories: "write slow blocking",
        arity: -4,
        keys: Keys::First(KeyUse::Update),
        args: &[KEY, OWNER, LEASE, BLOCK, SESSION, ONCE, FENCE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        request::run(ctx, args, Want::Upgrade, |answer| request::answer(answer, Self::DOCS.name))
    }
}
