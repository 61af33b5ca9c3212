//! A lock under test.

use redis::{Connection, RedisResult, Value};

use super::state::{derived, find, timeout, State};
use super::Lease;
use crate::{assert_error, assert_ok, call, int, list, micros, send, text, wait_until, Server};

/// A lock, and a connection that uses it. The commands are written without
/// prefix and key: `RLOCK a 1000`.
pub struct Lock {
    /// For commands of the server's own.
    pub con: Connection,
    key: String,
    first: First,
    /// Timeout keys that are to go right before the next command.
    lapsing: Vec<String>,
}

/// Who meets what has lapsed.
#[derive(Clone, Copy, Debug)]
enum First {
    /// The module's timer, before any command comes.
    Alarm,
    /// The next command, before the timer can fire.
    Command,
}

/// Runs a test of lapses twice, each time on a server of its own: first the
/// module itself removes what has lapsed, then the next command meets it. The
/// test gets a function that makes a lock of a name, see [`Lock::on`].
pub fn whoever_meets_it(test: impl Fn(&dyn Fn(&str) -> Lock)) {
    for first in [First::Alarm, First::Command] {
        let server = Server::builder().start();
        println!("the first to meet a lapse is the {first:?}");
        test(&|key| Lock { first, ..Lock::on(&server, key) });
    }
}

impl Lock {
    /// The lock with this name, which has no brace in it.
    pub fn on(server: &Server, key: &str) -> Self {
        let (first, lapsing) = (First::Alarm, Vec::new());
        Self { con: server.connection(), key: key.to_owned(), first, lapsing }
    }

    /// Sends a command whatever comes of it.
    pub fn send(&mut self, command: &str) -> RedisResult<Value> {
        let mut words = command.split(' ');
        let name = format!("RWLOCK.{}", words.next().unwrap_or_default());
        let words = [name.as_str(), self.key.as_str()].into_iter().chain(words);
        let lapsing = std::mem::take(&mut self.lapsing);
        if lapsing.is_empty() {
            return send(&mut self.con, words);
        }
        // Nothing comes between the commands of a transaction.
        assert_ok(call!(self.con, "MULTI"));
        assert_eq!(text(call!(self.con, "DEL", &lapsing)), "QUEUED");
        assert_eq!(text(send(&mut self.con, words)), "QUEUED");
        let [gone, reply] = &list(call!(self.con, "EXEC"))[..] else {
            panic!("{command}: not two replies");
        };
        assert_eq!(int(gone), lapsing.len() as i64, "{lapsing:?}");
        match reply.clone() {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        }
    }

    /// A command that takes a lease is answered `OK`. Gives the lease.
    #[track_caller]
    pub fn ok(&mut self, command: &str) -> Lease {
        let (reply, at) = self.timed(command);
        assert_ok(reply);
        Lease::of(number(command, 2), at)
    }

    /// A request is refused with the ms until `blocking` ends.
    #[track_caller]
    pub fn refuses(&mut self, command: &str, blocking: &Lease) {
        self.refused(command, blocking);
    }

    /// As [`Lock::refuses`], for a command with `RESERVE ms`. Gives the time that
    /// the reservation stands.
    #[track_caller]
    pub fn reserves(&mut self, command: &str, blocking: &Lease) -> Lease {
        let at = self.refused(command, blocking);
        let word = command.split(' ').position(|word| word.eq_ignore_ascii_case("RESERVE"));
        Lease::of(number(command, word.expect("a command with RESERVE") + 1), at)
    }

    #[track_caller]
    fn refused(&mut self, command: &str, blocking: &Lease) -> (i64, i64) {
        let (reply, at) = self.timed(command);
        let left = int(reply);
        let (least, most) = blocking.left(at);
        assert!((least..=most).contains(&left), "{command}: {left}, not {least} to {most}");
        at
    }

    /// A command is answered with this integer.
    #[track_caller]
    pub fn gives(&mut self, command: &str, expected: i64) {
        assert_eq!(int(self.send(command)), expected, "{command}");
    }

    /// A command is answered with `NOTHELD`, and a text that says this.
    #[track_caller]
    pub fn not_held(&mut self, command: &str, why: &str) {
        let text = assert_error(self.send(command), "NOTHELD");
        assert!(text.contains(why), "{command}: {text:?} does not say {why:?}");
    }

    /// These, and no others, are the keys of the lock.
    #[track_caller]
    pub fn is(&mut self, expected: State) {
        assert!(self.lapsing.is_empty(), "no command has met {:?}", self.lapsing);
        let (found, expected) = (find(&mut self.con, &self.key), expected.keys(&self.key));
        let same = found.len() == expected.len()
            && found.iter().all(|(name, key)| {
                expected.get(name).is_some_and(|expected| {
                    expected.content == key.content && expected.end.is(key.end)
                })
            });
        assert!(same, "\nexpected: {expected:#?}\n   found: {found:#?}");
    }

    /// Takes away the timeout keys of these read holds, as their lapse does,
    /// and waits until the module has removed the holds; or, if the next
    /// command shall meet them, has that done right before it.
    #[track_caller]
    pub fn lapse<const N: usize>(&mut self, owner: &str, numbers: [usize; N]) {
        let names = numbers.map(|number| self.timeout(owner, number));
        match self.first {
            First::Command => self.lapsing.extend(names),
            First::Alarm => {
                let left = self.count(owner) - N as i64;
                assert_eq!(int(call!(self.con, "DEL", &names[..])), N as i64);
                wait_until("the module removes the holds", || self.count(owner) == left);
            }
        }
    }

    /// The number of read holds that the hash tells of an owner.
    fn count(&mut self, owner: &str) -> i64 {
        match call!(self.con, "HGET", &self.key, owner) {
            Ok(Value::Nil) => 0,
            count => text(count).parse().expect("a count"),
        }
    }

    /// PERSIST on the hash.
    #[track_caller]
    pub fn persist(&mut self) {
        assert_eq!(int(call!(self.con, "PERSIST", &self.key)), 1);
    }

    /// PERSIST on a timeout key.
    #[track_caller]
    pub fn persist_timeout(&mut self, owner: &str, number: usize) {
        let name = self.timeout(owner, number);
        assert_eq!(int(call!(self.con, "PERSIST", name)), 1);
    }

    /// PEXPIRE on the hash.
    #[track_caller]
    pub fn expire(&mut self, ms: i64) -> Lease {
        let key = self.key.clone();
        self.pexpire(&key, ms)
    }

    /// PEXPIRE on a timeout key.
    #[track_caller]
    pub fn expire_timeout(&mut self, owner: &str, number: usize, ms: i64) -> Lease {
        let name = self.timeout(owner, number);
        self.pexpire(&name, ms)
    }

    /// PEXPIRE on the reservation.
    #[track_caller]
    pub fn expire_reservation(&mut self, ms: i64) -> Lease {
        let name = self.derived("wait_write");
        self.pexpire(&name, ms)
    }

    /// Waits until the server's clock has passed it. Touches no key: whoever
    /// removes what has lapsed, it is not this.
    #[track_caller]
    pub fn pass(&mut self, lease: &Lease) {
        wait_until("the lease is over", || self.now() > lease.latest());
    }

    /// The name of a timeout key.
    pub fn timeout(&self, owner: &str, number: usize) -> String {
        self.derived(&timeout(owner, number))
    }

    /// The name of a key that belongs to the lock.
    pub fn derived(&self, suffix: &str) -> String {
        derived(&self.key, suffix)
    }

    fn pexpire(&mut self, name: &str, ms: i64) -> Lease {
        let before = self.now();
        assert_eq!(int(call!(self.con, "PEXPIRE", name, ms)), 1);
        Lease::of(ms, (before, self.now()))
    }

    fn timed(&mut self, command: &str) -> (RedisResult<Value>, (i64, i64)) {
        let before = self.now();
        let reply = self.send(command);
        (reply, (before, self.now()))
    }

    /// The server's unix time in ms.
    fn now(&mut self) -> i64 {
        micros(call!(self.con, "TIME")) / 1_000
    }
}

fn number(command: &str, position: usize) -> i64 {
    let word = command.split(' ').nth(position);
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{command:?} has no number as word {position}"))
}
