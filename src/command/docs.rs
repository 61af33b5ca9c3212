//! The arguments that commands share, for COMMAND DOCS.

use crate::ffi::{Arg, ArgKind};

/// The lock.
pub const KEY: Arg = Arg { name: "key", kind: ArgKind::Key, token: None, optional: false };
/// Who asks.
pub const OWNER: Arg = Arg { name: "owner", kind: ArgKind::Text, token: None, optional: false };
/// A lease in ms.
pub const LEASE: Arg = Arg { name: "lease", kind: ArgKind::Integer, token: None, optional: false };
/// Wait.
pub const BLOCK: Arg = number("timeout", "BLOCK");
/// Bind to the connection.
pub const SESSION: Arg = word("session", "SESSION");
/// No second hold.
pub const ONCE: Arg = word("once", "ONCE");
/// Hand out a fencing token.
pub const FENCE: Arg = word("fence", "FENCE");
/// Leave a reservation.
pub const RESERVE: Arg = number("milliseconds", "RESERVE");
/// List no more than.
pub const COUNT: Arg = number("count", "COUNT");

/// An optional word.
pub const fn word(name: &'static str, token: &'static str) -> Arg {
    Arg { name, kind: ArgKind::Word, token: Some(token), optional: true }
}

/// One of several words, or none.
pub const fn one_of(name: &'static str, words: &'static [Arg]) -> Arg {
    Arg { name, kind: ArgKind::OneOf(words), token: None, optional: true }
}

const fn number(name: &'static str, token: &'static str) -> Arg {
    Arg { name, kind: ArgKind::Integer, token: Some(token), optional: true }
}

/// The word of UNLOCK and FORCEUNLOCK that means read holds.
pub const READ: Arg = Arg { optional: false, ..word("read", "READ") };
/// The word that means write holds.
pub const WRITE: Arg = Arg { optional: false, ..word("write", "WRITE") };

/// How an argument is written in a syntax line.
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
