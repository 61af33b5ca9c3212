//! The texts of errors, as clients see them: a code, a space, a sentence
//! (`docs/commands/README.md`, "Errors").

use crate::core::{Mode, NotHeld, TooMany, MAX_READS};
use crate::engine::{self, name};
use crate::store;

/// Why a command ended in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A syntax error at this argument: it is unknown, given twice, lacks its value, or
    /// excludes another option.
    Syntax(Box<[u8]>),
    /// A lease, or the time of RESERVE, is not an integer.
    InvalidExpire,
    /// A timeout is not an integer.
    BadTimeout,
    /// A timeout is below 0.
    NegativeTimeout,
    /// A count is not an integer.
    NotAnInteger,
    /// A count is below 1.
    NotPositive,
    /// A cursor is not an integer.
    BadCursor,
    /// One clause names this lock twice.
    NamedTwice(Box<[u8]>),
    /// The number of keys is not an integer, or below 1.
    BadNumkeys,
    /// The number of keys is larger than the number of arguments that follow it.
    TooFewKeys,
    /// A command names more locks than [`MAX_LOCKS`].
    TooManyLocks,
    /// The user may not run the command with this word.
    NotPermitted(&'static str),
    /// An error of the engine.
    Engine(engine::Error),
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Error {
        Error::Engine(error)
    }
}

impl Error {
    /// The error reply to `command`, one line.
    pub fn text(&self, command: &str) -> String {
        use engine::Error::{
            Busy, Deadlock, Elsewhere, Internal, InvalidExpire, InvalidTimeout, NoSession, NotHeld,
            OtherUpgrade, Replica, Stopped, Store, TooMany, TooManyWaiters,
        };
        match self {
            Error::Syntax(word) => format!("ERR syntax error near '{}'", name(word)),
            Error::BadTimeout | Error::Engine(InvalidTimeout) => {
                "ERR timeout is not an integer or out of range".into()
            }
            Error::NegativeTimeout => "ERR timeout is negative".into(),
            Error::BadCursor => "ERR invalid cursor".into(),
            Error::Engine(Replica) => {
                "ERR a replica does not know the held locks, ask the primary".into()
            }
            Error::Engine(Stopped) => "ERR the module is being unloaded".into(),
            Error::Engine(Busy) => {
                "ERR the call comes from a key event in the middle of another RWLOCK command".into()
            }
            Error::Engine(error @ (Deadlock(_) | OtherUpgrade(_))) => {
                format!("DEADLOCK {}", error.circle().unwrap_or_default())
            }
            Error::Engine(TooManyWaiters) => "ERR too many waiters".into(),
            Error::Engine(NoSession) => {
                "ERR SESSION needs a client connection, there is none here".into()
            }
            Error::Engine(Elsewhere(error)) => error.clone(),
            Error::Engine(Internal) => "ERR internal error: the server's log tells more".into(),
            Error::NotPermitted(word) => format!(
                "NOPERM this user has no permissions to run the '{command}|{word}' command: it \
                 needs those for 'rwlock.forceunlock' too"
            ),
            Error::NamedTwice(lock) => named_twice(lock),
            Error::BadNumkeys => "ERR numkeys is not an integer, 1 or more".into(),
            Error::TooFewKeys => "ERR numkeys is larger than the number of keys that follow".into(),
            Error::TooManyLocks => format!("ERR a command names at most {MAX_LOCKS} locks"),
            Error::NotAnInteger => "ERR value is not an integer or out of range".into(),
            Error::NotPositive => "ERR value is out of range, must be positive".into(),
            Error::InvalidExpire | Error::Engine(InvalidExpire) => {
                format!("ERR invalid expire time in '{command}' command: {EXPECTED}")
            }
            Error::Engine(NotHeld(reason)) => not_held(*reason),
            Error::Engine(TooMany(reason)) => too_many(*reason),
            Error::Engine(Store(error)) => keys(error),
        }
    }
}

fn not_held(reason: NotHeld) -> String {
    match reason {
        NotHeld::Free => "NOTHELD the lock is free".into(),
        NotHeld::OtherMode(mode) => {
            format!("NOTHELD the owner holds the lock in the other mode ({})", word(mode))
        }
        NotHeld::Others(mode) => {
            format!("NOTHELD the lock is held by others, in {} mode", word(mode))
        }
    }
}

fn too_many(reason: TooMany) -> String {
    match reason {
        TooMany::Reads => {
            format!("ERR the owner has {MAX_READS} read holds, the most there can be")
        }
        TooMany::Tokens => "ERR the next fencing token would not be below 2^53".into(),
        TooMany::Writes => "ERR increment or decrement would overflow".into(),
    }
}

fn keys(error: &store::Error) -> String {
    match error {
        store::Error::WrongType(what) => {
            format!("WRONGTYPE Operation against a key holding the wrong kind of value: {what}")
        }
        store::Error::Clash(lock) => {
            format!("ERR key clash with lock {}", name(lock))
        }
        store::Error::NamedTwice(lock) => named_twice(lock),
        store::Error::TooManyReads => {
            "ERR the hash counts more read holds than there can be".into()
        }
        store::Error::BadLockName(reason) | store::Error::BadOwner(reason) => {
            format!("ERR {reason}")
        }
        store::Error::CrossSlot => {
            "CROSSSLOT the keys made from this lock name would not hash to its slot; \
             use a name without braces or one with a {tag}"
                .into()
        }
        store::Error::TryAgain => {
            "TRYAGAIN the lock's slot is being migrated, its keys may be on two nodes".into()
        }
        store::Error::ClusterDown(what) => format!("CLUSTERDOWN {what}"),
    }
}

fn named_twice(lock: &[u8]) -> String {
    format!("ERR lock {} is named twice", name(lock))
}

/// The part of an error that says which leases are allowed.
const EXPECTED: &str = "the lease is an integer of milliseconds, 1 or more";

/// How many locks a command names at most.
pub const MAX_LOCKS: usize = 1_024;

/// A mode as replies and error texts spell it.
pub fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}
