//! `RWLOCK.MUNLOCK owner [READ numkeys key [key ...]] [WRITE numkeys key [key ...]]
//! [ALL numkeys key [key ...]]`

use super::clauses::Clauses;
use super::docs::{ALL_KEYS, OWNER, READ_KEYS, WRITE_KEYS};
use super::{run, Args, Command, Error, SINCE};
use crate::core::{Kind, Which};
use crate::ffi::{CommandDocs, Ctx, KeyUse, Keys, Reply, Str};
use hashbrown::HashSet;

/// Gives back holds on several locks in one step.
pub struct Munlock;

impl Command for Munlock {
    const DOCS: CommandDocs = CommandDocs {
        name: "rwlock.munlock",
        summary: "Gives back holds on several locks in one step",
        complexity: "O(N) with N the locks, and the holds on those that others read as well",
        since: SINCE,
        flags: "write getkeys-api",
        categories: "write slow",
        arity: -5,
        keys: Keys::Clauses(2, &[c"READ", c"WRITE", c"ALL"], KeyUse::Delete),
        args: &[OWNER, READ_KEYS, WRITE_KEYS, ALL_KEYS],
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<Reply, Error> {
        let (owner, clauses) = parse(args)?;
        let places: Vec<(&Str, Which)> =
            clauses.iter().map(|(word, key)| (key, which(word))).collect();
        let released = run(ctx, |engine| engine.release_joint(ctx, owner, &places))?;
        let integer = |released: Option<bool>| Reply::Integer(released.map_or(-1, i64::from));
        Ok(Reply::Array(released.into_iter().map(integer).collect()))
    }

    fn key_positions(args: Args<'_>) -> Result<Vec<usize>, Error> {
        parse(args).map(|(_, clauses)| clauses.positions())
    }
}

fn parse<'a>(mut args: Args<'a>) -> Result<(&'a Str, Clauses<'a>), Error> {
    let owner = args.next()?;
    let mut clauses = Clauses::default();
    while let Some(word) = args.word() {
        let word = match word.as_slice() {
            b"READ" => "READ",
            b"WRITE" => "WRITE",
            b"ALL" => "ALL",
            _ => return Err(args.syntax()),
        };
        clauses.read(word, &mut args)?;
    }
    if clauses.is_empty() {
        return Err(args.syntax());
    }
    clauses.each().try_for_each(named_once)?;
    Ok((owner, clauses))
}

/// Refuses a lock that one clause names twice.
fn named_once(keys: &[&Str]) -> Result<(), Error> {
    let mut names = HashSet::with_capacity(keys.len());
    match keys.iter().find(|key| !names.insert(key.bytes())) {
        None => Ok(()),
        Some(key) => Err(Error::NamedTwice(key.bytes().into())),
    }
}

fn which(word: &str) -> Which {
    match word {
        "READ" => Which::One(Kind::Read),
        "WRITE" => Which::One(Kind::Write),
        _ => Which::All,
    }
}
