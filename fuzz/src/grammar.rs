//! The arguments of each command, written down a second time, from the pages in `docs/commands`
//! and without a look at the module's own code.

use crate::keys::Bytes;
use std::collections::BTreeMap;

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Key,
    Owner,
    /// A lease, or another time that counts from now.
    Lease,
    Timeout,
    /// A time that has passed.
    Elapsed,
    Count,
    Cursor,
    Pattern,
    /// A number of keys, and the keys.
    Keys,
}

/// The arguments of a command.
pub struct Grammar {
    pub name: &'static str,
    pub arity: i32,
    pub first: &'static [Kind],
    /// Options, each with its value.
    pub options: &'static [(&'static str, Option<Kind>)],
    /// Whether there is at most one option.
    pub one_option: bool,
    /// Whether keys follow the first arguments, up to the end.
    pub keys_follow: bool,
}

use Kind::{Count, Cursor, Elapsed, Key, Keys, Lease, Owner, Pattern, Timeout};

const fn grammar(
    name: &'static str,
    arity: i32,
    first: &'static [Kind],
    options: &'static [(&'static str, Option<Kind>)],
) -> Grammar {
    Grammar { name, arity, first, options, one_option: false, keys_follow: false }
}

const COUNT: (&str, Option<Kind>) = ("COUNT", Some(Count));

pub static ALL: [Grammar; 16] = [
    grammar(
        "RWLOCK.RLOCK",
        -4,
        &[Key, Owner, Lease],
        &[("BLOCK", Some(Timeout)), ("SESSION", None), ("ONCE", None)],
    ),
    grammar(
        "RWLOCK.WLOCK",
        -4,
        &[Key, Owner, Lease],
        &[
            ("BLOCK", Some(Timeout)),
            ("SESSION", None),
            ("ONCE", None),
            ("FENCE", None),
            ("RESERVE", Some(Lease)),
        ],
    ),
    Grammar {
        one_option: true,
        ..grammar(
            "RWLOCK.UNLOCK",
            -3,
            &[Key, Owner],
            &[("READ", None), ("WRITE", None), ("ALL", None)],
        )
    },
    grammar("RWLOCK.RENEW", 4, &[Key, Owner, Lease], &[]),
    grammar(
        "RWLOCK.UPGRADE",
        -4,
        &[Key, Owner, Lease],
        &[("BLOCK", Some(Timeout)), ("SESSION", None), ("ONCE", None), ("FENCE", None)],
    ),
    grammar("RWLOCK.DOWNGRADE", 4, &[Key, Owner, Lease], &[]),
    grammar(
        "RWLOCK.MLOCK",
        -6,
        &[Owner, Lease],
        &[
            ("READ", Some(Keys)),
            ("WRITE", Some(Keys)),
            ("BLOCK", Some(Timeout)),
            ("SESSION", None),
            ("ONCE", None),
            ("FENCE", None),
        ],
    ),
    grammar(
        "RWLOCK.MUNLOCK",
        -5,
        &[Owner],
        &[("READ", Some(Keys)), ("WRITE", Some(Keys)), ("ALL", Some(Keys))],
    ),
    Grammar { keys_follow: true, ..grammar("RWLOCK.MRENEW", -4, &[Owner, Lease], &[]) },
    Grammar {
        one_option: true,
        ..grammar("RWLOCK.FORCEUNLOCK", -2, &[Key], &[("READ", None), ("WRITE", None)])
    },
    grammar("RWLOCK.INSPECT", -2, &[Key], &[COUNT]),
    grammar(
        "RWLOCK.LIST",
        -2,
        &[Cursor],
        &[("MATCH", Some(Pattern)), ("HELD", Some(Elapsed)), COUNT],
    ),
    grammar("RWLOCK.QUEUES", -1, &[], &[COUNT]),
    Grammar { one_option: true, ..grammar("RWLOCK.LOG", -1, &[], &[COUNT, ("RESET", None)]) },
    Grammar { one_option: true, ..grammar("RWLOCK.HOTLOCKS", -1, &[], &[COUNT, ("RESET", None)]) },
    grammar("RWLOCK.HELP", 1, &[], &[]),
];

/// A command whose arguments have the right form.
#[derive(Debug)]
pub struct Parsed {
    pub name: &'static str,
    /// The first arguments.
    pub first: Vec<Bytes>,
    /// The options, in the order given, each with its value.
    pub options: Vec<(&'static str, Vec<Bytes>)>,
    /// The keys of MRENEW.
    pub keys: Vec<Bytes>,
    /// The places of the keys that follow a word.
    pub positions: Vec<usize>,
}

impl Parsed {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == option)
    }

    pub fn number(&self, option: &str) -> Option<i64> {
        let (_, value) = self.options.iter().find(|(name, _)| *name == option)?;
        integer(value.first()?)
    }

    pub fn keys_of(&self, option: &str) -> &[Bytes] {
        let found = self.options.iter().find(|(name, _)| *name == option);
        found.map_or(&[], |(_, keys)| keys)
    }
}

/// The error of arguments that have the wrong form: how its text begins.
pub type Wrong = &'static str;

const SYNTAX: Wrong = "ERR syntax error near '";

/// Parses a command.
pub fn parse(args: &[&[u8]]) -> Result<Parsed, Wrong> {
    let name = args[0].to_ascii_uppercase();
    let grammar = ALL.iter().find(|grammar| grammar.name.as_bytes() == name);
    let grammar = grammar.expect("a command of the module");
    let count = args.len() as i32;
    if grammar.arity > 0 && count != grammar.arity || count < -grammar.arity {
        return Err("ERR wrong number of arguments");
    }
    let mut at = 1;
    let mut first = Vec::new();
    for kind in grammar.first {
        check(*kind, args[at])?;
        first.push(args[at].to_vec());
        at += 1;
    }
    let mut parsed = Parsed {
        name: grammar.name,
        first,
        options: Vec::new(),
        keys: Vec::new(),
        positions: Vec::new(),
    };
    if grammar.keys_follow {
        parsed.keys = args[at..].iter().map(|key| key.to_vec()).collect();
        return match parsed.keys.len() {
            0 => Err(SYNTAX),
            1..=1024 => Ok(parsed),
            _ => Err("ERR a command names at most 1024 locks"),
        };
    }
    while at < args.len() {
        let word = args[at].to_ascii_uppercase();
        let option = grammar.options.iter().find(|(name, _)| name.as_bytes() == word);
        let (name, kind) = option.ok_or(SYNTAX)?;
        let excluded = match *name {
            "BLOCK" => parsed.has("RESERVE"),
            "RESERVE" => parsed.has("BLOCK"),
            _ => false,
        };
        if excluded || parsed.has(name) || grammar.one_option && !parsed.options.is_empty() {
            return Err(SYNTAX);
        }
        at += 1;
        let mut value = Vec::new();
        match kind {
            None => {}
            Some(Kind::Keys) => {
                let count = integer(args.get(at).ok_or(SYNTAX)?).filter(|count| *count > 0);
                let count = count.ok_or("ERR numkeys is not an integer, 1 or more")?;
                at += 1;
                if count > (args.len() - at) as i64 {
                    return Err("ERR numkeys is larger than the number of keys that follow");
                }
                for _ in 0..count {
                    value.push(args[at].to_vec());
                    parsed.positions.push(at);
                    at += 1;
                }
                if parsed.positions.len() > 1024 {
                    return Err("ERR a command names at most 1024 locks");
                }
            }
            Some(kind) => {
                let text = args.get(at).ok_or(SYNTAX)?;
                check(*kind, text)?;
                value.push(text.to_vec());
                at += 1;
            }
        }
        parsed.options.push((name, value));
    }
    if ["RWLOCK.MLOCK", "RWLOCK.MUNLOCK"].contains(&parsed.name) && parsed.positions.is_empty() {
        return Err(SYNTAX);
    }
    if parsed.name == "RWLOCK.MLOCK" && parsed.has("FENCE") && !parsed.has("WRITE") {
        return Err(SYNTAX);
    }
    if parsed.name == "RWLOCK.MUNLOCK" {
        for (_, keys) in &parsed.options {
            let mut seen = BTreeMap::new();
            if keys.iter().any(|key| seen.insert(key, ()).is_some()) {
                return Err("ERR lock ");
            }
        }
    }
    Ok(parsed)
}

fn check(kind: Kind, text: &[u8]) -> Result<(), Wrong> {
    let number = integer(text);
    let cursor = std::str::from_utf8(text).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let (is_right, wrong) = match kind {
        Kind::Key | Kind::Owner | Kind::Pattern | Kind::Keys => (true, ""),
        Kind::Lease => (number.is_some(), "ERR invalid expire time in '"),
        Kind::Timeout if number.is_some() => (number >= Some(0), "ERR timeout is negative"),
        Kind::Timeout => (false, "ERR timeout is not an integer or out of range"),
        Kind::Elapsed => (number >= Some(0), "ERR value is not an integer or out of range"),
        Kind::Count if number.is_some() => {
            (number > Some(0), "ERR value is out of range, must be positive")
        }
        Kind::Count => (false, "ERR value is not an integer or out of range"),
        Kind::Cursor => (cursor.is_some_and(|c| c.parse::<u64>().is_ok()), "ERR invalid cursor"),
    };
    is_right.then_some(()).ok_or(wrong)
}

/// An integer as the server reads it: it is written in the one way in which it would be printed.
pub fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// Whether a lock may have this name.
pub fn is_lock_name(name: &[u8]) -> bool {
    let ends = [b":wait_write".as_slice(), b":rwlock_fence"];
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let before = &name[..name.len() - digits];
    !ends.iter().any(|end| name.ends_with(end))
        && !(digits > 0 && before.ends_with(b":rwlock_timeout:"))
}

/// Whether an owner may have this name.
pub fn is_owner(name: &[u8]) -> bool {
    (1..=1024).contains(&name.len()) && name != b"mode" && !name.ends_with(b":write")
}

/// What the names of a lock's other keys begin with.
pub fn prefix(lock: &[u8]) -> Bytes {
    match lock.contains(&b'{') {
        true => lock.to_vec(),
        false => [b"{", lock, b"}"].concat(),
    }
}

/// The timeout key of a read hold.
pub fn timeout_key(lock: &[u8], owner: &[u8], number: u64) -> Bytes {
    let number = number.to_string();
    [&prefix(lock), b":".as_slice(), owner, b":rwlock_timeout:", number.as_bytes()].concat()
}
