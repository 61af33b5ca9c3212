//! Random work on a few locks, by a few owners, with every command and option.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redis::{Connection, RedisResult, Value};

use crate::{
    assert_ok, bytes, call, error_text, fresh_seed, int, list, send, text, wait_until, Random,
    Server,
};

/// Two of them share their derived names.
const LOCKS: [&[u8]; 6] = [b"stock", b"{stock}", b"order{7}", b"a{b", b"", b"\xff\0\r\n"];
const OWNERS: [&[u8]; 3] = [b"anna", b"b:1", b"\xfe\0 c"];

/// `K` is a lock, `O` an owner, `L` a time long enough to outlive the test.
const COMMANDS: [&str; 18] = [
    "RWLOCK.RLOCK K O L",
    "RWLOCK.RLOCK K O L ONCE",
    "RWLOCK.WLOCK K O L",
    "RWLOCK.WLOCK K O L ONCE",
    "RWLOCK.WLOCK K O L FENCE",
    "RWLOCK.WLOCK K O L RESERVE L",
    "RWLOCK.WLOCK K O L RESERVE L ONCE",
    "RWLOCK.UNLOCK K O",
    "RWLOCK.UNLOCK K O READ",
    "RWLOCK.UNLOCK K O WRITE",
    "RWLOCK.UNLOCK K O ALL",
    "RWLOCK.RENEW K O L",
    "RWLOCK.UPGRADE K O L",
    "RWLOCK.UPGRADE K O L FENCE",
    "RWLOCK.DOWNGRADE K O L",
    "RWLOCK.FORCEUNLOCK K",
    "RWLOCK.FORCEUNLOCK K READ",
    "RWLOCK.FORCEUNLOCK K WRITE",
];

/// What happens to a lock from outside.
const ACCIDENTS: [&str; 4] =
    ["a hold lapses", "a lock lapses", "a reservation ends", "a lock is persisted"];

/// One client's random work.
pub struct Workload {
    random: Random,
    /// How often each command was granted and each accident happened.
    done: BTreeMap<&'static str, u32>,
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), done: BTreeMap::new() }
    }

    #[track_caller]
    pub fn steps(&mut self, con: &mut Connection, count: u32) {
        for _ in 0..count {
            self.step(con);
        }
    }

    /// Goes on until every command was granted and every accident happened: no
    /// seed says when, for what lapses depends on the order of the server's keys.
    #[track_caller]
    pub fn complete(&mut self, con: &mut Connection) {
        const LIMIT: usize = 20_000;
        let extra = ["a reservation is left", "a reservation is consumed"];
        for what in COMMANDS.iter().chain(&ACCIDENTS).chain(&extra) {
            for _ in 0..LIMIT {
                if self.done.contains_key(what) {
                    break;
                }
                self.step(con);
            }
            assert!(self.done.contains_key(what), "never: {what}; done: {:?}", self.done);
        }
    }

    #[track_caller]
    fn step(&mut self, con: &mut Connection) {
        assert_ok(call!(con, "SELECT", u8::from(self.random.one_in(4))));
        let lock = self.random.pick(&LOCKS);
        if self.random.one_in(8) {
            let accident = self.random.pick(&ACCIDENTS);
            if self.befall(con, lock, accident) {
                self.count(accident);
            }
            return;
        }
        // Forcing is rare, or little would be left to force.
        let rare = if self.random.one_in(6) { 0 } else { 3 };
        let command = self.random.pick(&COMMANDS[..COMMANDS.len() - rare]);
        let owner = self.random.pick(&OWNERS);
        let words: Vec<Vec<u8>> = command
            .split(' ')
            .map(|word| match word {
                "K" => lock.to_vec(),
                "O" => owner.to_vec(),
                "L" => (100_000 + self.random.below(1_000_000)).to_string().into_bytes(),
                _ => word.as_bytes().to_vec(),
            })
            .collect();
        let reserved = command.starts_with("RWLOCK.WLOCK")
            && call!(con, "GET", reservation(lock)) == Ok(Value::BulkString(owner.to_vec()));
        match self.send(con, &words) {
            Ok(reply @ (Value::Okay | Value::Array(_))) => {
                assert_eq!(reply != Value::Okay, command.contains("FENCE"), "{command}");
                self.count(command);
                if reserved && call!(con, "EXISTS", reservation(lock)) == Ok(Value::Int(0)) {
                    self.count("a reservation is consumed");
                }
            }
            Ok(Value::Int(_)) if command.contains("RESERVE") => {
                self.count("a reservation is left");
            }
            // An acquisition that is refused, or nothing to force.
            Ok(Value::Int(_)) if command.contains(" L") => {}
            Ok(Value::Int(0)) if command.contains("FORCE") => {}
            Ok(Value::Int(_)) => self.count(command),
            Ok(other) => panic!("{command}: {other:?}"),
            Err(error) => {
                let text = error_text(&error);
                let expected = ["NOTHELD ", "ERR key clash with lock "];
                assert!(expected.iter().any(|start| text.starts_with(start)), "{command}: {text}");
            }
        }
    }

    /// Sends it plainly, inside a transaction or from a script.
    fn send(&mut self, con: &mut Connection, words: &[Vec<u8>]) -> RedisResult<Value> {
        match self.random.below(6) {
            0 => {
                assert_ok(call!(con, "MULTI"));
                assert_eq!(text(send(con, words)), "QUEUED");
                match list(call!(con, "EXEC")).swap_remove(0) {
                    Value::ServerError(error) => Err(error.into()),
                    reply => Ok(reply),
                }
            }
            1 => {
                let script: [&[u8]; 3] = [b"EVAL", b"return redis.pcall(unpack(ARGV))", b"0"];
                send(con, script.into_iter().chain(words.iter().map(Vec::as_slice)))
            }
            _ => send(con, words),
        }
    }

    /// Whether there was something that it could happen to.
    fn befall(&mut self, con: &mut Connection, lock: &[u8], accident: &str) -> bool {
        match accident {
            "a hold lapses" => {
                let mut timeouts = list(call!(con, "KEYS", "*:rwlock_timeout:*"));
                if timeouts.is_empty() {
                    return false;
                }
                let chosen = self.random.below_len(timeouts.len());
                lapse(con, &bytes(timeouts.swap_remove(chosen)))
            }
            "a lock lapses" => self.random.one_in(3) && lapse(con, lock),
            "a reservation ends" => lapse(con, &reservation(lock)),
            _ => int(call!(con, "PERSIST", lock)) == 1,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }
}

/// Lets a key expire, and waits until it has. Whether there was one.
fn lapse(con: &mut Connection, key: &[u8]) -> bool {
    if int(call!(con, "PEXPIRE", key, 1)) == 0 {
        return false;
    }
    // Somebody else may take the lock meanwhile.
    wait_until("a key expires", || !(0..=1).contains(&int(call!(con, "PTTL", key))));
    true
}

/// The key of a lock's reservation.
fn reservation(lock: &[u8]) -> Vec<u8> {
    let tagged = if lock.contains(&b'{') { lock.to_vec() } else { [b"{", lock, b"}"].concat() };
    [&tagged[..], b":wait_write"].concat()
}

/// Does `act` while several clients work on the server. `act` gets a function
/// that waits until they have done a number of steps more.
#[track_caller]
pub fn under_load<T>(server: &Server, act: impl FnOnce(&dyn Fn(u64)) -> T) -> T {
    /// Ends the load also when `act` panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let stop = AtomicBool::new(false);
    let steps = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut con = server.connection();
                let mut workload = Workload::new(fresh_seed());
                while !stop.load(Ordering::Relaxed) {
                    workload.step(&mut con);
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        let done = || steps.load(Ordering::Relaxed);
        act(&|more| {
            let target = done() + more;
            wait_until("the load goes on", || done() >= target);
        })
    })
}
