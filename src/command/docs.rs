//! The arguments that commands share, described for COMMAND DOCS and HELP.

use crate::ffi::{Arg, ArgKind};

/// The name of the lock.
pub const KEY: Arg = plain("key", ArgKind::Key(0));
/// The owner that the client speaks for.
pub const OWNER: Arg = plain("owner", ArgKind::Text);
/// The lease in ms, 1 or more.
pub const LEASE: Arg = plain("lease", ArgKind::Integer);
/// One or more locks.
pub const KEYS: Arg = keys(0);
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
/// The cursor of LIST.
pub const CURSOR: Arg = plain("cursor", ArgKind::Integer);
/// MATCH: a pattern of names.
pub const MATCH: Arg = Arg { kind: ArgKind::Pattern, ..number("pattern", "MATCH") };
/// HELD: how long a lock has been held at least, in ms.
pub const HELD: Arg = number("milliseconds", "HELD");
/// COUNT: how many entries to list at most, 1 or more.
pub const COUNT: Arg = number("count", "COUNT");

/// An optional word without a value.
pub const fn word(name: &'static str, token: &'static str) -> Arg {
    Arg { token: Some(token), optional: true, ..plain(name, ArgKind::Word) }
}

/// At most one of these words.
pub const fn one_of(name: &'static str, words: &'static [Arg]) -> Arg {
    Arg { optional: true, ..plain(name, ArgKind::OneOf(words)) }
}

/// An optional word with a number.
const fn number(name: &'static str, token: &'static str) -> Arg {
    Arg { token: Some(token), optional: true, ..plain(name, ArgKind::Integer) }
}

/// An argument that is neither optional nor behind a word.
const fn plain(name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: None, optional: false, multiple: false }
}

/// One or more locks, which this key spec of the command finds.
const fn keys(spec: i32) -> Arg {
    Arg { multiple: true, ..plain("key", ArgKind::Key(spec)) }
}

/// A word with a number of locks and their names. It stands for one of the command's key specs.
const fn clause(name: &'static str, token: &'static str, args: &'static [Arg]) -> Arg {
    Arg { token: Some(token), optional: true, ..plain(name, ArgKind::Block(args)) }
}

const NUMKEYS: Arg = plain("numkeys", ArgKind::Integer);
/// READ, for MLOCK and MUNLOCK: the locks to read.
pub const READ_KEYS: Arg = clause("read", "READ", &[NUMKEYS, keys(0)]);
/// WRITE, for MLOCK and MUNLOCK: the locks to write.
pub const WRITE_KEYS: Arg = clause("write", "WRITE", &[NUMKEYS, keys(1)]);
/// ALL, for MUNLOCK: the locks on which every hold is given back.
pub const ALL_KEYS: Arg = clause("all", "ALL", &[NUMKEYS, keys(2)]);

/// READ, for UNLOCK and FORCEUNLOCK: a choice inside of [`one_of`].
pub const READ: Arg = Arg { optional: false, ..word("read", "READ") };
/// WRITE, for UNLOCK and FORCEUNLOCK: a choice inside of [`one_of`].
pub const WRITE: Arg = Arg { optional: false, ..word("write", "WRITE") };

/// COUNT, where it is a choice inside of [`one_of`].
pub const COUNT_ONLY: Arg = Arg { optional: false, ..COUNT };
/// RESET, for LOG and HOTLOCKS: a choice inside of [`one_of`].
pub const RESET: Arg = Arg { optional: false, ..word("reset", "RESET") };

/// The argument in a line of HELP, such as `[BLOCK timeout]`.
pub fn syntax(arg: &Arg) -> String {
    let inner = match (arg.kind, arg.token) {
        (ArgKind::OneOf(words), _) => words.iter().map(syntax).collect::<Vec<_>>().join(" | "),
        (ArgKind::Block(args), Some(token)) => {
            let args: Vec<_> = args.iter().map(syntax).collect();
            format!("{token} {}", args.join(" "))
        }
        (ArgKind::Word, Some(token)) => token.into(),
        (_, None) if arg.multiple => format!("{0} [{0} ...]", arg.name),
        (_, Some(token)) => format!("{token} {}", arg.name),
        (_, None) => arg.name.into(),
    };
    if arg.optional {
        format!("[{inner}]")
    } else {
        inner
    }
}
