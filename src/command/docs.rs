//! The arguments that commands share, described for COMMAND DOCS and HELP.

use crate::ffi::{Arg, ArgKind};

/// The name of the lock.
pub const KEY: Arg = Arg { name: "key", kind: ArgKind::Key, token: None, optional: false };
/// The owner that the client speaks for.
pub const OWNER: Arg = Arg { name: "owner", kind: ArgKind::Text, token: None, optional: false };
/// The lease in ms, 1 or more.
pub const LEASE: Arg = Arg { name: "lease", kind: ArgKind::Integer, token: None, optional: false };
/// BLOCK: how long to wait, in ms; 0: without end.
pub const BLOCK: Arg = number("timeout", "BLOCK");
/// SESSION: bind the hold to the connection.
pub const SESSION: Arg = word("session", "SESSION");
/// ONCE: lengthen an existing hold instead of adding a second one.
pub const ONCE: Arg = word("once", "ONCE");
/// FENCE: reply with a fencing token.
pub const FENCE: Arg = word("fence", "FENCE");
/// RESERVE: how long to reserve the lock if the request is refused, in ms.
pub const RESERVE: Arg = number("milliseconds", "RESERVE");
/// COUNT: how many entries to list at most, 1 or more.
pub const COUNT: Arg = number("count", "COUNT");

/// An optional word without a value.
pub const fn word(name: &'static str, token: &'static str) -> Arg {
    Arg { name, kind: ArgKind::Word, token: Some(token), optional: true }
}

/// At most one of these words.
pub const fn one_of(name: &'static str, words: &'static [Arg]) -> Arg {
    Arg { name, kind: ArgKind::OneOf(words), token: None, optional: true }
}

/// An optional word with a number.
const fn number(name: &'static str, token: &'static str) -> Arg {
    Arg { name, kind: ArgKind::Integer, token: Some(token), optional: true }
}

/// READ, for UNLOCK and FORCEUNLOCK: a choice inside of [`one_of`].
pub const READ: Arg = Arg { optional: false, ..word("read", "READ") };
/// WRITE, for UNLOCK and FORCEUNLOCK: a choice inside of [`one_of`].
pub const WRITE: Arg = Arg { optional: false, ..word("write", "WRITE") };

/// The argument in a line of HELP, such as `[BLOCK timeout]`.
pub fn syntax(arg: &Arg) -> String {
    let inner = match (arg.kind, arg.token) {
        (ArgKind::OneOf(words), _) => words.iter().map(syntax).collect::<Vec<_>>().join(" | "),
        (ArgKind::Word, Some(token)) => token.into(),
        (_, Some(token)) => format!("{token} {}", arg.name),
        (_, None) => arg.name.into(),
    };
    if arg.optional {
        format!("[{inner}]")
    } else {
        inner
    }
}
