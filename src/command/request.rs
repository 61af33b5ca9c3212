//! What RLOCK, WLOCK and UPGRADE share: `key owner lease` and the options.

use super::{Args, Error};
use crate::core::{Token, Want};
use crate::engine::{Acquired, Answer, Ask};
use crate::ffi::{Ctx, Reply};
use crate::server;

/// Reads the arguments of a request, runs it and makes the reply. `render`
/// makes the reply of an answer that comes later.
pub fn run(
    ctx: Ctx<'_>,
    args: Args<'_>,
    want: Want,
    render: fn(Answer) -> Reply,
) -> Result<Reply, Error> {
    let ask = parse(args, want)?;
    Ok(server::acquire(ctx, &ask, render)??.map_or(Reply::Later, reply))
}

fn parse<'a>(mut args: Args<'a>, want: Want) -> Result<Ask<'a>, Error> {
    let mut ask = Ask {
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
            b"BLOCK" if ask.block.is_none() && ask.reserve.is_none() => {
                ask.block = Some(args.timeout()?)
            }
            b"SESSION" if !ask.session => ask.session = true,
            b"ONCE" if !ask.once => ask.once = true,
            b"FENCE" if want != Want::Read && !ask.fence => ask.fence = true,
            b"RESERVE" if want == Want::Write && ask.reserve.is_none() && ask.block.is_none() => {
                ask.reserve = Some(args.millis()?);
            }
            _ => return Err(args.syntax()),
        }
    }
    Ok(ask)
}

/// The reply of an answer that comes to the command of this name.
pub fn answer(answer: Answer, command: &str) -> Reply {
    match answer {
        Answer::Held(grant) => held(grant.token),
        Answer::TimedOut(left) => reply(Acquired::Refused(left)),
        Answer::Failed(error) => Reply::Error(Error::from(error).text(command)),
    }
}

/// `OK`, with the fencing token that was asked for.
fn held(token: Option<Token>) -> Reply {
    match token {
        Some(token) => Reply::Array(vec![Reply::Ok, Reply::Integer(token)]),
        None => Reply::Ok,
    }
}

/// `OK`, or the ms to wait at the most; -1: without end.
fn reply(acquired: Acquired) -> Reply {
    match acquired {
        Acquired::Held(token) => held(token),
        Acquired::Refused(left) => Reply::Integer(left.unwrap_or(-1)),
        Acquired::Waiting(_) => Reply::Later,
    }
}
