//! The locks of a database, as its keys tell.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use support::redisson::{timeout, LATCH};
use support::{int, list, text};

/// Gives every key of the database with its absolute expiry and its content,
/// all at one point in time.
pub const DUMP: &str = "
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
    local content = redis.call('TYPE', name).ok
    if content == 'hash' then
        content = redis.call('HGETALL', name)
    elseif content == 'string' then
        content = redis.call('GET', name)
    end
    all[#all + 1] = {name, redis.call('PEXPIRETIME', name), content}
end
return all
";

/// What the name of a key ends in that holds a fencing token.
const FENCE: &str = ":rwlock_fence";

/// A lock and its live holds. Times are unix times in ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub mode: String,
    pub end: i64,
    /// The ends of each owner's live read holds, lowest number first.
    pub reads: BTreeMap<String, Vec<i64>>,
    /// The number of each owner's write holds.
    pub writes: BTreeMap<String, i64>,
    /// Owners of read holds that have lapsed and are still counted.
    pub lapsed: BTreeSet<String>,
}

impl Lock {
    fn is_held(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty()
    }
}

/// The locks that are held, by name.
pub type Picture = BTreeMap<String, Lock>;

enum Content {
    Hash(Vec<(String, String)>),
    Text(String),
}

/// Makes sense of a [`DUMP`]. A timeout key's value must be among what
/// `values` gives for its lock. Whatever is no part of a lock is an error,
/// but unlock latches
/// and fencing tokens.
pub fn picture(dump: Value, values: impl Fn(&str) -> Vec<String>) -> Result<Picture, String> {
    let mut texts = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for key in list(dump) {
        let parts = list(key);
        let (name, end) = (text(&parts[0]), int(&parts[1]));
        match content(&parts[2]) {
            Content::Hash(fields) => drop(hashes.insert(name, (end, fields))),
            Content::Text(_) if name.starts_with(LATCH) => {}
            // Only the module has it, and it is no part of who holds what.
            Content::Text(token) if name.ends_with(FENCE) && token.parse::<u64>().is_ok() => {}
            Content::Text(value) => drop(texts.insert(name, (end, value))),
        }
    }
    let mut picture = Picture::new();
    for (name, (end, fields)) in hashes {
        let lock = lock(&name, end, fields, &mut texts, &values(&name))?;
        if lock.is_held() {
            picture.insert(name, lock);
        }
    }
    match texts.first_key_value() {
        None => Ok(picture),
        Some((name, (end, value))) => {
            Err(format!("a key that belongs to no hold: {name:?} = {value:?}, ends at {end}"))
        }
    }
}

/// A lock from its hash and from `texts`, out of which it takes its timeout
/// keys.
fn lock(
    name: &str,
    end: i64,
    fields: Vec<(String, String)>,
    texts: &mut BTreeMap<String, (i64, String)>,
    values: &[String],
) -> Result<Lock, String> {
    let mut lock = Lock { end, ..Lock::default() };
    for (field, value) in fields {
        if field == "mode" {
            lock.mode = value;
            continue;
        }
        let count: i64 = value.parse().map_err(|_| format!("{name:?} {field:?} = {value:?}"))?;
        if count < 1 {
            return Err(format!("{name:?} {field:?} = {count}"));
        }
        if let Some(owner) = field.strip_suffix(":write") {
            lock.writes.insert(owner.to_owned(), count);
            continue;
        }
        let mut ends = Vec::new();
        for number in 1..=count.unsigned_abs() {
            let timeout = timeout(name, &field, number);
            match texts.remove(&timeout) {
                Some((end, value)) if end > 0 && values.contains(&value) => ends.push(end),
                Some((end, value)) => {
                    return Err(format!("{timeout:?} = {value:?}, ends at {end}"));
                }
                None => drop(lock.lapsed.insert(field.clone())),
            }
        }
        if !ends.is_empty() {
            lock.reads.insert(field, ends);
        }
    }
    match lock.mode.as_str() {
        "write" if lock.writes.len() == 1 => Ok(lock),
        "read" if lock.writes.is_empty() => Ok(lock),
        _ => Err(format!("the mode of {name:?} does not fit its holders: {lock:?}")),
    }
}

fn content(value: &Value) -> Content {
    match value {
        Value::Array(flat) => {
            Content::Hash(flat.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
        }
        other => Content::Text(text(other)),
    }
}
