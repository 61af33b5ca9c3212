//! Clients that take write locks on several accounts and give all of them back.

use super::peers::{execute, hello, number_of, prepare};
use super::polling::evalsha;
use super::{owner, Contender, OnServer, Processes, Waits};
use redis::Connection;
use std::time::Duration;
use support::redisson::{load, DEFAULT_LEASE};
use support::wire::packed;

/// KEYS accounts; ARGV owner, lease. Takes all of them or none.
const TAKE_ALL: &str = "
if redis.call('EXISTS', unpack(KEYS)) > 0 then
    return 0
end
for _, key in ipairs(KEYS) do
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return 1
";

/// KEYS accounts; ARGV owner. Answers how many were still the owner's.
const GIVE_ALL: &str = "
local freed = 0
for number, holder in ipairs(redis.call('MGET', unpack(KEYS))) do
    if holder == ARGV[1] then
        freed = freed + redis.call('DEL', KEYS[number])
    end
end
return freed
";

/// A request that takes one lock, or all.
pub struct Step {
    pub ask: Vec<u8>,
    pub subscribe: Vec<u8>,
    pub unsubscribe: Vec<u8>,
}

/// Requests that are sent in one write.
#[derive(Default)]
pub struct Requests {
    pub bytes: Vec<u8>,
    pub count: usize,
}

/// All that a client says for one transfer.
pub struct Transfer {
    /// One after the other: each is sent when the one before is granted.
    pub take: Vec<Step>,
    pub give: Requests,
    /// After giving back, without waiting for the answers.
    pub after: Requests,
}

/// What a client with this number says about these accounts.
type Say = dyn Fn(&Contender, &[String], usize) -> Transfer;

/// A contender whose clients take several locks.
pub struct Mover {
    pub name: &'static str,
    pub contender: Contender,
    /// Each client says this once, when it is connected.
    pub greet: Vec<Vec<u8>>,
    /// How each answer to giving back begins.
    pub given: Vec<u8>,
    say: Box<Say>,
}

impl Mover {
    /// What a client with this number says about these accounts.
    pub fn transfer(&self, accounts: &[String], number: usize) -> Transfer {
        (self.say)(&self.contender, accounts, number)
    }

    fn new(
        name: &'static str,
        contender: Contender,
        given: impl Into<Vec<u8>>,
        say: impl Fn(&Contender, &[String], usize) -> Transfer + 'static,
    ) -> Self {
        Self { name, contender, greet: Vec::new(), given: given.into(), say: Box::new(say) }
    }
}

impl OnServer {
    /// All contenders of this server, for transfers that lock so many accounts.
    pub fn movers(&self, con: &mut Connection, locks: usize) -> Vec<Mover> {
        let redisson = self.redisson(con, Processes::Many);
        vec![
            self.mlock(locks),
            Mover::new("rwlock WLOCK, one by one", self.module(true), *b":1", one_by_one),
            Mover::new("Redisson's Lua, one by one", redisson, *b":1", one_by_one),
            self.polled(con, locks),
            self.nothing(),
        ]
    }

    /// No lock: SET and DEL of a key that no other client uses. What any two requests cost.
    fn nothing(&self) -> Mover {
        let contender = self.contender("", b"+OK", [&["set", "del"]; 2], |_, _| unreachable!());
        Mover::new("SET and DEL, no lock", contender, *b":1", |_, _, number| {
            let (key, lease) = (owner(number), DEFAULT_LEASE.to_string());
            at_once(packed(["SET", &key, "1", "PX", &lease]), packed(["DEL", &key]))
        })
    }

    /// This module: one command takes all, one gives all back.
    fn mlock(&self, locks: usize) -> Mover {
        let given = format!("*{locks}\r\n{}", ":1\r\n".repeat(locks));
        Mover::new("rwlock MLOCK", self.module(true), given, |_, accounts, number| {
            let (owner, lease) = (owner(number), DEFAULT_LEASE.to_string());
            let count = accounts.len().to_string();
            let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
            let words = |head: &[&str], tail: &[&str]| packed([head, &names, tail].concat());
            let take = words(&["RWLOCK.MLOCK", &owner, &lease, "WRITE", &count], &["BLOCK", "0"]);
            let give = words(&["RWLOCK.MUNLOCK", &owner, "WRITE", &count], &[]);
            at_once(take, give)
        })
    }

    /// Lua of one's own for all locks: a client that is refused asks again after
    /// a pause.
    fn polled(&self, con: &mut Connection, locks: usize) -> Mover {
        let [take, give] =
            [TAKE_ALL, GIVE_ALL].map(|script| load(con, script).expect("load a script"));
        let contender = Contender {
            waits: Waits::Again(Duration::from_millis(10)),
            ..self.contender("", b":1", [&["evalsha"]; 2], |_, _| unreachable!("one lock only"))
        };
        let name = "Lua for all, polled every 10 ms";
        Mover::new(name, contender, format!(":{locks}\r\n"), move |_, accounts, number| {
            let owner = owner(number);
            let keys: Vec<&str> = accounts.iter().map(String::as_str).collect();
            let (mut take, mut give) = (evalsha(&take, &keys), evalsha(&give, &keys));
            take.arg(&owner).arg(DEFAULT_LEASE);
            give.arg(&owner);
            at_once(take.get_packed_command(), give.get_packed_command())
        })
    }
}

/// PostgreSQL: a statement for each lock, and one that gives all back.
pub fn postgres(contender: Contender, locks: usize) -> Mover {
    let calls: Vec<String> =
        (1..=locks).map(|number| format!("pg_advisory_unlock(${number})")).collect();
    let greet = vec![
        hello(),
        prepare("take", "SELECT pg_advisory_lock($1)"),
        prepare("give", &format!("SELECT {}", calls.join(", "))),
    ];
    // The answer to the bind.
    let mover = Mover::new("PostgreSQL, one by one", contender, *b"2", |_, accounts, _| {
        let keys: Vec<String> =
            sorted(accounts).iter().map(|account| number_of(account).to_string()).collect();
        let take = keys.iter().map(|key| step(execute("take", &[key]))).collect();
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        let give = Requests { bytes: execute("give", &all), count: 1 };
        Transfer { take, give, after: Requests::default() }
    });
    Mover { greet, ..mover }
}

/// Takes the locks as single ones, in an order that all clients keep.
fn one_by_one(contender: &Contender, accounts: &[String], number: usize) -> Transfer {
    let mut transfer =
        Transfer { take: Vec::new(), give: Requests::default(), after: Requests::default() };
    for account in sorted(accounts) {
        let talk = contender.talk(&account, number);
        let [[_, ask], [_, give]] = [talk.take, talk.give];
        let (subscribe, unsubscribe) = (talk.subscribe, talk.unsubscribe);
        transfer.take.push(Step { ask, subscribe, unsubscribe });
        transfer.give.add(give);
        talk.after.into_iter().for_each(|after| transfer.after.add(after));
    }
    transfer
}

fn sorted(accounts: &[String]) -> Vec<String> {
    let mut accounts = accounts.to_vec();
    accounts.sort();
    accounts
}

fn at_once(take: Vec<u8>, give: Vec<u8>) -> Transfer {
    Transfer {
        take: vec![step(take)],
        give: Requests { bytes: give, count: 1 },
        after: Requests::default(),
    }
}

fn step(ask: Vec<u8>) -> Step {
    Step { ask, subscribe: Vec::new(), unsubscribe: Vec::new() }
}

impl Requests {
    fn add(&mut self, request: Vec<u8>) {
        self.bytes.extend(request);
        self.count += 1;
    }
}
