//! Each command of the module with arguments that are fine by themselves, for
//! tests that make one thing wrong.

use redis::{Connection, RedisResult, Value};

use crate::send;

/// A command: its name, and what else it says.
pub struct Command {
    pub name: &'static str,
    pub has_owner: bool,
    /// What stands between the owner and the lock, for commands whose owner comes first.
    before: Option<&'static [&'static str]>,
    /// What follows the lock and the owner.
    pub rest: &'static [&'static str],
}

const fn owned(name: &'static str, rest: &'static [&'static str]) -> Command {
    Command { name, has_owner: true, before: None, rest }
}

const fn keyed(name: &'static str, rest: &'static [&'static str]) -> Command {
    Command { name, has_owner: false, before: None, rest }
}

const fn joint(
    name: &'static str,
    before: &'static [&'static str],
    rest: &'static [&'static str],
) -> Command {
    Command { name, has_owner: true, before: Some(before), rest }
}

/// All that change a lock, in their various forms.
pub const WRITING: [Command; 32] = [
    owned("RWLOCK.RLOCK", &["60000"]),
    owned("RWLOCK.RLOCK", &["60000", "ONCE"]),
    owned("RWLOCK.RLOCK", &["60000", "BLOCK", "1"]),
    owned("RWLOCK.RLOCK", &["60000", "SESSION", "ONCE", "BLOCK", "1"]),
    owned("RWLOCK.WLOCK", &["60000"]),
    owned("RWLOCK.WLOCK", &["60000", "ONCE"]),
    owned("RWLOCK.WLOCK", &["60000", "BLOCK", "1"]),
    owned("RWLOCK.WLOCK", &["60000", "SESSION"]),
    owned("RWLOCK.WLOCK", &["60000", "RESERVE", "60000"]),
    owned("RWLOCK.WLOCK", &["60000", "RESERVE", "60000", "ONCE"]),
    owned("RWLOCK.WLOCK", &["60000", "FENCE"]),
    owned("RWLOCK.WLOCK", &["60000", "FENCE", "SESSION", "ONCE", "BLOCK", "1"]),
    owned("RWLOCK.UNLOCK", &[]),
    owned("RWLOCK.UNLOCK", &["READ"]),
    owned("RWLOCK.UNLOCK", &["WRITE"]),
    owned("RWLOCK.UNLOCK", &["ALL"]),
    owned("RWLOCK.RENEW", &["60000"]),
    owned("RWLOCK.UPGRADE", &["60000"]),
    owned("RWLOCK.UPGRADE", &["60000", "BLOCK", "1"]),
    owned("RWLOCK.UPGRADE", &["60000", "SESSION"]),
    owned("RWLOCK.UPGRADE", &["60000", "FENCE"]),
    owned("RWLOCK.DOWNGRADE", &["60000"]),
    joint("RWLOCK.MLOCK", &["60000", "READ", "1"], &[]),
    joint("RWLOCK.MLOCK", &["60000", "BLOCK", "1", "WRITE", "1"], &["FENCE", "ONCE"]),
    joint("RWLOCK.MLOCK", &["60000", "SESSION", "READ", "1"], &[]),
    joint("RWLOCK.MUNLOCK", &["READ", "1"], &[]),
    joint("RWLOCK.MUNLOCK", &["WRITE", "1"], &[]),
    joint("RWLOCK.MUNLOCK", &["ALL", "1"], &[]),
    joint("RWLOCK.MRENEW", &["60000"], &[]),
    keyed("RWLOCK.FORCEUNLOCK", &[]),
    keyed("RWLOCK.FORCEUNLOCK", &["READ"]),
    keyed("RWLOCK.FORCEUNLOCK", &["WRITE"]),
];

/// Those that look.
pub const READING: [Command; 2] =
    [keyed("RWLOCK.INSPECT", &[]), keyed("RWLOCK.INSPECT", &["COUNT", "1"])];

/// All that have a key.
pub fn all() -> impl Iterator<Item = &'static Command> {
    WRITING.iter().chain(&READING)
}

/// All that have an owner.
pub fn with_owner() -> impl Iterator<Item = &'static Command> {
    WRITING.iter().filter(|command| command.has_owner)
}

impl Command {
    /// The arguments, for this lock and owner.
    pub fn words(&self, lock: &[u8], owner: &[u8]) -> Vec<Vec<u8>> {
        let mut words = vec![self.name.as_bytes().to_vec()];
        let add = |words: &mut Vec<Vec<u8>>, more: &[&str]| {
            words.extend(more.iter().map(|word| word.as_bytes().to_vec()));
        };
        match self.before {
            Some(before) => {
                words.push(owner.to_vec());
                add(&mut words, before);
                words.push(lock.to_vec());
            }
            None => {
                words.push(lock.to_vec());
                words.extend(self.has_owner.then(|| owner.to_vec()));
            }
        }
        add(&mut words, self.rest);
        words
    }

    /// Sends it.
    pub fn call(&self, con: &mut Connection, lock: &[u8], owner: &[u8]) -> RedisResult<Value> {
        send(con, self.words(lock, owner))
    }

    /// Asserts that it is refused with this error, changes nothing and leaves
    /// the connection in step.
    #[track_caller]
    pub fn refused(&self, con: &mut Connection, lock: &[u8], owner: &[u8], error: &str) -> String {
        use crate::unchanged::{assert_unchanged, shown};
        use crate::{assert_error, call, text};
        let what = format!("{} {:?} on {}", self.name, self.rest, shown(lock));
        let text_of_error = assert_unchanged(con, |con| {
            let result = self.call(con, lock, owner);
            assert!(result.is_err(), "{what} by {}: {result:?}", shown(owner));
            assert_error(result, error)
        });
        assert_eq!(text(call!(con, "PING")), "PONG", "after {what}");
        text_of_error
    }
}
