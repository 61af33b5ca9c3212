//! The code that RLOCK, WLOCK and UPGRADE share: their arguments `key owner lease [options]`
//! and their replies.

use super::{Args, Error};
use crate::core::Want;
use crate::engine::{AcquireRequest, Acquired, Answer};
use crate::ffi::{Ctx, Reply};
use crate::server;

/// Reads the arguments of a request, runs it and makes the reply. `render`: makes the reply
/// from the answer when the request has waited.
pub fn run(
    ctx: Ctx<'_>,
    args: Args<'_>,
    want: Want,
    render: fn(Answer) -> Reply,
) -> Result<Reply, Error> {
    let request = parse(args, want)?;
    let acquired =
        server::acquire(ctx, render, |engine, block| engine.acquire(ctx, &request, block))?;
    Ok(reply(acquired))
}

fn parse<'a>(mut args: Args<'a>, want: Want) -> Result<AcquireRequest<'a>, Error> {
    let mut request = AcquireRequest {
        key: args.next()?,
        owner: args.next()?,
        lease: args.millis()?,
        want,
        once: false,
        session: false,
        fence: false,
        reserve: None,
        block: None,
    };
    while let Some(word) = args.word() {
        match word.as_slice() {
            b"BLOCK" if request.block.is_none() && request.reserve.is_none() => {
                request.block = Some(args.timeout()?)
            }
            b"SESSION" if !request.session => request.session = true,
            b"ONCE" if !request.once => request.once = true,
            b"FENCE" if want != Want::Read && !request.fence => request.fence = true,
            b"RESERVE"
                if want == Want::Write && request.reserve.is_none() && request.block.is_none() =>
            {
                request.reserve = Some(args.millis()?);
            }
            _ => return Err(args.syntax()),
        }
    }
    Ok(request)
}

/// The reply to a request that has waited. `command`: the name that an error text may show.
pub fn answer(answer: Answer, command: &str) -> Reply {
    match answer {
        Answer::Held(grants) => reply(Acquired::held(&grants)),
        Answer::TimedOut(remaining) => reply(Acquired::Refused(remaining)),
        Answer::Failed(error) => Reply::Error(Error::from(error).text(command)),
    }
}

/// The reply to a request: `OK`, with FENCE an array of `OK` and the tokens; or an integer for a
/// refused one. The integer is the ms until the obstacle ends at the latest; -1: it never ends
/// by itself.
pub fn reply(acquired: Acquired) -> Reply {
    match acquired {
        Acquired::Held { tokens, .. } if tokens.is_empty() => Reply::Ok,
        Acquired::Held { tokens, .. } => {
            let tokens = tokens.into_iter().map(Reply::Integer);
            Reply::Array([Reply::Ok].into_iter().chain(tokens).collect())
        }
        Acquired::Refused(remaining) => Reply::Integer(remaining.unwrap_or(-1)),
        Acquired::Waiting => Reply::Later,
    }
}
