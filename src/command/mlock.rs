//! `RWLOCK.MLOCK owner lease [READ numkeys key [key ...]] [WRITE numkeys key [key ...]]
//! [BLOCK timeout] [SESSION] [ONCE] [FENCE]`

use super::clauses::Clauses;
use super::docs::{BLOCK, FENCE, LEASE, ONCE, OWNER, READ_KEYS, SESSION, WRITE_KEYS};
use super::{request, Args, Command, Error, SINCE};
use crate::core::Want;
use crate::engine::JointRequest;
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply};
use crate::server;

/// Takes holds on several locks in one step.
pub struct Mlock;

impl Command for Mlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.mlock",
        summary: "Takes holds on several locks in one step, or none of them",
        complexity: "O(N) with N the locks, and the read holds that the owner has already",
        since: SINCE,
        flags: "write deny-oom blocking getkeys-api",
        categories: "write slow blocking",
        arity: -6,
        keys: Keys::Clauses(3, &[c"READ", c"WRITE"], KeyUse::Update),
        args: &[OWNER, LEASE, READ_KEYS, WRITE_KEYS, BLOCK, SESSION, ONCE, FENCE],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        let (request, _) = parse(args)?;
        let render = |answer| request::answer(answer, Self::DOCS.name);
        let acquired = server::acquire(ctx, render, |engine, block| {
            engine.acquire_joint(ctx, &request, block)
        });
        Ok(request::reply(acquired?))
    }

    fn key_positions(args: Args<'_>) -> Result<Vec<usize>, Error> {
        parse(args).map(|(_, clauses)| clauses.positions())
    }
}

fn parse<'a>(mut args: Args<'a>) -> Result<(JointRequest<'a>, Clauses<'a>), Error> {
    let (owner, lease) = (args.next()?, args.millis()?);
    let (mut once, mut session, mut fence, mut block) = (false, false, None, None);
    let mut clauses = Clauses::default();
    while let Some(word) = args.word() {
        match word.as_slice() {
            b"READ" => clauses.read("READ", &mut args)?,
            b"WRITE" => clauses.read("WRITE", &mut args)?,
            b"BLOCK" if block.is_none() => block = Some(args.timeout()?),
            b"SESSION" if !session => session = true,
            b"ONCE" if !once => once = true,
            b"FENCE" if fence.is_none() => fence = Some(args.syntax()),
            _ => return Err(args.syntax()),
        }
    }
    if clauses.is_empty() {
        return Err(args.syntax());
    }
    if let Some(error) = fence.take_if(|_| !clauses.has("WRITE")) {
        return Err(error);
    }
    let want = |word| if word == "READ" { Want::Read } else { Want::Write };
    let places = clauses.iter().map(|(word, key)| (key, want(word))).collect();
    let fence = fence.is_some();
    Ok((JointRequest { owner, places, lease, once, session, fence, block }, clauses))
}
