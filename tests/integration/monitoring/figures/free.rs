//! A client that does as it likes among others, and knows exactly what it has
//! been told: it alone speaks for its owner, and its leases outlast the test.

use std::collections::BTreeMap;

use redis::Value;

use super::tally::Counts;
use support::wire::Wire;
use support::{int, list, map, text, wait_until, Random};

/// The locks that all clients share.
const LOCKS: usize = 12;

/// What one owner holds on one lock.
#[derive(Clone, Copy, Debug, Default)]
struct Holds {
    reads: u64,
    writes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    Read,
    Write,
    Upgrade,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Take {
        want: Take,
        once: bool,
        block: bool,
    },
    /// READ, WRITE or neither.
    Give(Option<Take>),
    GiveAll,
    Downgrade,
    Renew,
    /// A take of a lock of its own, with a short lease.
    Lapse,
    /// Of a lock of its own.
    Force,
    /// MULTI, or a command that is queued.
    Begun,
}

#[derive(Clone, Debug)]
struct Sent {
    what: What,
    lock: String,
    /// The reply is the only one of a transaction.
    in_transaction: bool,
}

pub struct Client {
    port: u16,
    number: usize,
    /// All its holds are bound to its connection.
    bound: bool,
    wire: Wire,
    random: Random,
    holds: BTreeMap<String, Holds>,
    pub counts: Counts,
}

impl Client {
    pub fn new(port: u16, number: usize, seed: u64) -> Self {
        let random = Random::new(seed.wrapping_add(number as u64 * 7_919));
        let wire = Wire::connect(port);
        let bound = number % 3 == 0;
        let (holds, counts) = (BTreeMap::new(), Counts::default());
        Self { port, number, bound, wire, random, holds, counts }
    }

    /// A few commands at once, and their replies; perhaps it leaves meanwhile, be
    /// it while it waits.
    pub fn go_on(&mut self) {
        let (mut lines, mut sent) = (Vec::new(), Vec::new());
        let leaves = self.random.chance(4);
        for _ in 0..1 + self.random.below(8) {
            self.add(&mut lines, &mut sent);
        }
        self.wire.send_all(&lines);
        if leaves {
            self.wire.end();
        }
        let mut sent = sent.into_iter();
        let mut unanswered = None;
        for one in sent.by_ref() {
            let Some(reply) = self.wire.reply() else {
                assert!(leaves, "{one:?}: it was cut off");
                unanswered = Some(one.lock);
                break;
            };
            self.hear(&one, &reply);
        }
        if leaves {
            self.counts.unanswered += u64::from(unanswered.is_some());
            self.come_back(unanswered);
        }
    }

    /// The connection is over, and what was bound to it. So is a grant that it
    /// was not told of.
    fn come_back(&mut self, unanswered: Option<String>) {
        assert_eq!(self.wire.reply(), None, "the server goes on talking");
        self.wire = Wire::connect(self.port);
        let mut locks: Vec<String> = unanswered.into_iter().collect();
        if self.bound {
            for (lock, holds) in std::mem::take(&mut self.holds) {
                self.counts.tally.disconnect_releases += holds.reads + holds.writes;
                locks.push(lock);
            }
        }
        for lock in locks {
            let holds = self.holds.get(&lock).map_or(0, |holds| holds.reads + holds.writes);
            wait_until("the server knows of it", || self.held(&lock) == holds);
        }
    }

    /// How many holds the server says that it has.
    fn held(&mut self, lock: &str) -> u64 {
        let seen = map(self.wire.ask(&format!("RWLOCK.INSPECT {lock} COUNT 1000")));
        let owner = format!("owner{}", self.number);
        let holders = list(&seen["holders"]).into_iter().map(map);
        let own = holders.filter(|holder| text(&holder["owner"]) == owner);
        own.map(|holder| int(&holder["holds"]).unsigned_abs()).sum()
    }

    fn add(&mut self, lines: &mut Vec<String>, sent: &mut Vec<Sent>) {
        let lock = format!("lock{}", self.random.below_len(LOCKS));
        let own = format!("own-{}", self.number);
        let owner = format!("owner{}", self.number);
        let session = if self.bound { " SESSION" } else { "" };
        let (what, lock, line) = match self.random.below(100) {
            0..45 => {
                let (want, word) = match self.random.below(10) {
                    0..5 => (Take::Read, "RLOCK"),
                    5..9 => (Take::Write, "WLOCK"),
                    _ => (Take::Upgrade, "UPGRADE"),
                };
                let once = want != Take::Upgrade && self.random.chance(20);
                let block = self.random.chance(50);
                let mut line = format!("RWLOCK.{word} {lock} {owner} 600000{session}");
                if once {
                    line += " ONCE";
                }
                if block {
                    line += &format!(" BLOCK {}", self.random.between(1, 12));
                }
                (What::Take { want, once, block }, lock, line)
            }
            45..75 => {
                let (which, word) = match self.random.below(6) {
                    0 => (Some(Take::Read), " READ"),
                    1 => (Some(Take::Write), " WRITE"),
                    _ => (None, ""),
                };
                (What::Give(which), lock.clone(), format!("RWLOCK.UNLOCK {lock} {owner}{word}"))
            }
            75..87 => (What::GiveAll, lock.clone(), format!("RWLOCK.UNLOCK {lock} {owner} ALL")),
            87..90 => {
                (What::Downgrade, lock.clone(), format!("RWLOCK.DOWNGRADE {lock} {owner} 600000"))
            }
            90..93 => (What::Renew, lock.clone(), format!("RWLOCK.RENEW {lock} {owner} 600000")),
            93..95 => {
                // Whether one is the first or a re-entrant one: it lapses.
                let kind = if self.random.chance(50) { "R" } else { "W" };
                let lease = self.random.between(1, 30);
                let lock = format!("{own}-{kind}-lapsing");
                (What::Lapse, lock.clone(), format!("RWLOCK.{kind}LOCK {lock} {owner} {lease}"))
            }
            95..97 => (What::Force, own.clone(), format!("RWLOCK.FORCEUNLOCK {own}")),
            _ => {
                let (want, block, once) = (Take::Read, false, false);
                let line = format!("RWLOCK.RLOCK {own} {owner} 600000{session}");
                (What::Take { want, once, block }, own, line)
            }
        };
        let plain = |what| Sent { what, lock: String::new(), in_transaction: false };
        // Nobody waits inside a transaction.
        let in_transaction = self.random.chance(8);
        if in_transaction {
            lines.extend(["MULTI".to_owned(), line, "EXEC".to_owned()]);
            sent.extend([plain(What::Begun), plain(What::Begun)]);
        } else {
            lines.push(line);
        }
        sent.push(Sent { what, lock, in_transaction });
    }

    fn hear(&mut self, sent: &Sent, reply: &Value) {
        let reply = match (sent.in_transaction, reply) {
            (true, Value::Array(replies)) if replies.len() == 1 => &replies[0],
            (true, other) => panic!("EXEC: {other:?}"),
            (false, reply) => reply,
        };
        let said = Said::of(reply);
        let context = format!("{sent:?}: {reply:?}");
        if !matches!(sent.what, What::Begun) {
            self.counts.commands += 1;
        }
        let tally = &mut self.counts.tally;
        let holds = self.holds.entry(sent.lock.clone()).or_default();
        match (sent.what, said) {
            (What::Begun | What::Renew, _) => {}
            (What::Take { want, once, block }, Said::Ok) => {
                tally.acquired += 1;
                self.counts.blocks_granted += u64::from(block && !sent.in_transaction);
                match want {
                    Take::Read => holds.reads += u64::from(!once || holds.reads == 0),
                    Take::Write => holds.writes += u64::from(!once || holds.writes == 0),
                    Take::Upgrade => holds.writes += 1,
                }
            }
            (What::Take { block, .. }, Said::Integer) => match block && !sent.in_transaction {
                true => tally.timeouts += 1,
                false => tally.refused += 1,
            },
            (What::Take { .. }, Said::Deadlock) => tally.deadlocks += 1,
            (What::Take { want: Take::Upgrade, .. }, Said::NotHeld) => {
                assert_eq!(holds.reads, 0, "{context}");
            }
            (What::Give(which), Said::Integer) => {
                tally.released += 1;
                let count = match which {
                    Some(Take::Read) => &mut holds.reads,
                    None if holds.reads > 0 => &mut holds.reads,
                    _ => &mut holds.writes,
                };
                assert!(*count > 0, "it had none: {context}");
                *count -= 1;
            }
            (What::GiveAll, Said::Integer) => {
                tally.released += holds.reads + holds.writes;
                *holds = Holds::default();
            }
            (What::Give(which), Said::NotHeld) => {
                let held = match which {
                    Some(Take::Read) => holds.reads,
                    Some(_) => holds.writes,
                    None => holds.reads + holds.writes,
                };
                assert_eq!(held, 0, "{context}");
            }
            (What::GiveAll, Said::NotHeld) => {
                assert_eq!(holds.reads + holds.writes, 0, "{context}")
            }
            (What::Downgrade, Said::Ok) => {
                tally.released += holds.writes;
                *holds = Holds { reads: holds.reads.max(1), writes: 0 };
            }
            (What::Downgrade, Said::NotHeld) => assert_eq!(holds.writes, 0, "{context}"),
            (What::Lapse, Said::Ok) => {
                tally.acquired += 1;
                tally.lapsed += 1;
            }
            (What::Force, Said::Integer) => {
                tally.released += holds.reads + holds.writes;
                *holds = Holds::default();
            }
            _ => panic!("{context}"),
        }
    }

    /// Gives everything back.
    pub fn finish(mut self) -> Counts {
        let held = self.holds.iter().filter(|(_, holds)| holds.reads + holds.writes > 0);
        let locks: Vec<String> = held.map(|(lock, _)| lock.clone()).collect();
        for lock in locks {
            let line = format!("RWLOCK.UNLOCK {lock} owner{} ALL", self.number);
            let reply = self.wire.ask(&line);
            self.hear(&Sent { what: What::GiveAll, lock, in_transaction: false }, &reply);
        }
        self.counts
    }
}

#[derive(Clone, Copy, Debug)]
enum Said {
    Ok,
    Integer,
    NotHeld,
    Deadlock,
    Else,
}

impl Said {
    fn of(reply: &Value) -> Said {
        match reply {
            Value::Okay => Said::Ok,
            Value::Int(_) => Said::Integer,
            Value::ServerError(error) => match error.code() {
                "NOTHELD" => Said::NotHeld,
                "DEADLOCK" => Said::Deadlock,
                _ => Said::Else,
            },
            _ => Said::Else,
        }
    }
}
