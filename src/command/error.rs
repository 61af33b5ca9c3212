//! The texts of errors, as clients see them: a code, a space, a sentence
//! (`docs/commands/README.md`, "Errors").

use crate::core::{Mode, NotHeld, OwnerId, TooMany, MAX_READS};
use crate::engine;
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
            OtherUpgrade, Stopped, Store, TooMany, TooManyWaiters,
        };
        match self {
            Error::Syntax(word) => format!("ERR syntax error near '{}'", name(word)),
            Error::BadTimeout | Error::Engine(InvalidTimeout) => {
                "ERR timeout is not an integer or out of range".into()
            }
            Error::NegativeTimeout => "ERR timeout is negative".into(),
            Error::Engine(Stopped) => "ERR the module is being unloaded".into(),
            Error::Engine(Busy) => {
                "ERR the call comes from a key event in the middle of another RWLOCK command".into()
            }
            Error::Engine(Deadlock(circle)) => deadlock(circle),
            Error::Engine(OtherUpgrade(owner)) => format!(
                "DEADLOCK {} waits to upgrade and each would wait for the other",
                name(owner)
            ),
            Error::Engine(TooManyWaiters) => "ERR too many waiters".into(),
            Error::Engine(NoSession) => {
                "ERR SESSION needs a client connection, there is none here".into()
            }
            Error::Engine(Elsewhere(error)) => error.clone(),
            Error::Engine(Internal) => "ERR internal error: the server's log tells more".into(),
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

fn deadlock(circle: &[OwnerId]) -> String {
    match circle {
        [owner] => format!("DEADLOCK {} reads this lock and would wait for itself", name(owner)),
        circle => {
            let mut text = "DEADLOCK ".to_string();
            for (at, owner) in circle.iter().enumerate() {
                let next = &circle[(at + 1) % circle.len()];
                let comma = if at == 0 { "" } else { ", " };
                text += &format!("{comma}{} waits for {}", name(owner), name(next));
            }
            text
        }
    }
}

/// A name as an error shows it: at most [`MAX_NAME`] characters.
fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(MAX_NAME).collect()
}

/// The part of an error that says which leases are allowed.
const EXPECTED: &str = "the lease is an integer of milliseconds, 1 or more";

/// How many characters of a name an error shows.
const MAX_NAME: usize = 256;

/// A mode as replies and error texts spell it.
pub fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}
