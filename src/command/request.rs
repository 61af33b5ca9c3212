//! What RLOCK and WLOCK share: `key owner lease` and the options.

use super::{Args, Error};
use crate::core::Kind;
use crate::engine::{Acquire, Acquired};
use crate::ffi::Reply;

/// Reads the arguments of a request for a hold of this kind.
pub fn parse<'a>(mut args: Args<'a>, kind: Kind) -> Result<Acquire<'a>, Error> {
    let mut request = Acquire {
        key: args.next()?,
        owner: args.next()?,
        lease: args.millis()?,
        kind,
        once: false,
        reserve: None,
    };
    while let Some(word) = args.word() {
        match word.as_slice() {
            b"ONCE" if !request.once => request.once = true,
            b"RESERVE" if kind == Kind::Write && request.reserve.is_none() => {
                request.reserve = Some(args.millis()?);
            }
            _ => return Err(Error::Syntax),
        }
    }
    Ok(request)
}

/// `OK`, or the ms to wait at the most; -1: without end.
pub fn reply(acquired: Acquired) -> Reply {
    match acquired {
        Acquired::Held => Reply::Ok,
        Acquired::Refused(left) => Reply::Integer(left.unwrap_or(-1)),
    }
}
