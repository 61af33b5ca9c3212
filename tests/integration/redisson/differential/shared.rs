//! One lock used by both: clients of the module and clients of Redisson, as
//! during a migration.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::meaning::Meaning;
use super::picture::{picture, Lock, DUMP};
use super::reference::{LAPSE, LAPSED};
use super::runs::{seeds, steps_per_seed};
use super::step::{lapse, long_lease, module_command, LOCKS, OWNERS, RENEWED};
use support::redisson::{self, Redisson};
use support::wire::{Batch, Replies};
use support::Random;
use support::{assert_ok, bytes, call, int, list, map, text, Server};

/// How many steps one run makes when nobody says.
const STEPS: u64 = 8_000;

/// How many steps go to the server at once.
const AT_ONCE: u64 = 40;

/// Holds nothing, and so sees to it that the module meets lapsed holds.
const NOBODY: &str = "nobody";

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Module,
    Redisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    ReadLock,
    WriteLock,
    ReadUnlock,
    WriteUnlock,
    Renew,
    /// Of the module only.
    ReadOnce,
    UnlockAll,
    Upgrade,
    Downgrade,
    Force,
    /// Live holds of the lock lapse.
    Lapse(u32),
}

const ACTS: [(u64, Act); 11] = [
    (220, Act::ReadLock),
    (240, Act::WriteLock),
    (180, Act::ReadUnlock),
    (110, Act::WriteUnlock),
    (40, Act::Renew),
    (40, Act::ReadOnce),
    (70, Act::UnlockAll),
    (40, Act::Upgrade),
    (30, Act::Downgrade),
    (6, Act::Force),
    (8, Act::Lapse(1 << 12)),
];

#[derive(Clone, Debug)]
struct Step {
    by: By,
    lock: &'static str,
    owner: &'static str,
    act: Act,
    lease: u32,
    /// Different in every step.
    id: u64,
}

/// What the replies have given to one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holds {
    reads: i64,
    writes: i64,
}

/// Who holds the lock, by the replies alone. Owners without holds are not in
/// it.
type Holders = BTreeMap<&'static str, Holds>;

#[test]
fn the_module_and_the_scripts_share_a_lock() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let scripts = Redisson::load(&mut con).expect("load the scripts");
    let mut load = |script: &str| redisson::load(&mut con, script).expect("load a script");
    let (dump, lapse) = (load(DUMP), load(LAPSE));
    let steps = steps_per_seed(STEPS);
    let seeds = seeds();
    for &seed in &seeds {
        let mut sharing = Sharing {
            scripts: scripts.clone(),
            dump: dump.clone(),
            lapse: lapse.clone(),
            locks: BTreeMap::new(),
        };
        if let Err(report) = sharing.run(&mut con, seed, steps) {
            panic!("{report}\nagain: RWLOCK_SEED={seed} RWLOCK_STEPS={}", steps * 4);
        }
        sharing.give_all_back(&mut con);
        let left = list(call!(con, "KEYS", "*"));
        assert!(left.is_empty(), "everybody has given back, and there is {left:?}, seed {seed}");
    }
    println!("{} steps on shared locks, seeds {seeds:?}", steps * seeds.len() as u64);
}

struct Sharing {
    scripts: Redisson,
    dump: String,
    lapse: String,
    locks: BTreeMap<&'static str, Holders>,
}

impl Sharing {
    fn run(&mut self, con: &mut redis::Connection, seed: u64, steps: u64) -> Result<(), String> {
        assert_ok(call!(con, "FLUSHALL"));
        let mut random = Random::new(seed);
        let mut done = 0;
        while done < steps {
            let steps: Vec<Step> =
                (done..steps.min(done + AT_ONCE)).map(|id| Step::random(&mut random, id)).collect();
            let mut batch = Batch::default();
            for step in &steps {
                self.write(&mut batch, step);
            }
            let mut replies = batch.exchange(con);
            for step in &steps {
                done += 1;
                self.check(step, &mut replies)
                    .map_err(|wrong| format!("step {done}, {step:?}: {wrong}"))?;
            }
        }
        Ok(())
    }

    fn write(&self, batch: &mut Batch, step: &Step) {
        for command in self.commands(step) {
            batch.add(&command);
        }
        if let Act::Lapse(_) = step.act {
            batch.words(&["DEBUG", "SLEEP", LAPSED]);
            batch.words(&["RWLOCK.UNLOCK", step.lock, NOBODY]);
        }
        if step.by == By::Redisson {
            batch.words(&["DEL", &redisson::latch(step.lock, &step.id.to_string())]);
        }
        batch.words(&["RWLOCK.INSPECT", step.lock]);
        batch.words(&["EVALSHA", &self.dump, "0"]);
    }

    fn commands(&self, step: &Step) -> Vec<Cmd> {
        let &Step { by, lock, owner, act, lease, id } = step;
        let by_module = |command, lease| vec![module_command(command, lock, owner, lease)];
        let (id, scripts) = (id.to_string(), &self.scripts);
        match (act, by) {
            (Act::ReadLock, By::Module) => by_module("RLOCK", Some(lease)),
            (Act::ReadLock, By::Redisson) => vec![scripts.read_lock(lock, owner, lease)],
            (Act::WriteLock, By::Module) => by_module("WLOCK", Some(lease)),
            (Act::WriteLock, By::Redisson) => vec![scripts.write_lock(lock, owner, lease)],
            (Act::ReadUnlock, By::Module) => by_module("UNLOCK READ", None),
            (Act::ReadUnlock, By::Redisson) => vec![scripts.read_unlock(lock, owner, &id)],
            (Act::WriteUnlock, By::Module) => by_module("UNLOCK WRITE", None),
            (Act::WriteUnlock, By::Redisson) => vec![scripts.write_unlock(lock, owner, &id)],
            (Act::Renew, By::Module) => by_module("RENEW", Some(RENEWED)),
            (Act::Renew, By::Redisson) => vec![
                scripts.read_renew(lock, owner, RENEWED),
                scripts.write_renew(lock, owner, RENEWED),
            ],
            (Act::ReadOnce, _) => by_module("RLOCK ONCE", Some(lease)),
            (Act::UnlockAll, _) => by_module("UNLOCK ALL", None),
            (Act::Upgrade, _) => by_module("UPGRADE", Some(lease)),
            (Act::Downgrade, _) => by_module("DOWNGRADE", Some(lease)),
            (Act::Force, _) => by_module("FORCEUNLOCK", None),
            (Act::Lapse(bits), _) => vec![lapse(&self.lapse, lock, bits)],
        }
    }

    fn check(&mut self, step: &Step, replies: &mut Replies) -> Result<(), String> {
        let reply = Answer::read(step, replies)?;
        if let Act::Lapse(_) = step.act {
            replies.good();
            replies.any();
        }
        if step.by == By::Redisson {
            replies.good();
        }
        let (inspect, dump) = (replies.good(), replies.good());

        let holders = self.locks.entry(step.lock).or_default();
        let expected = step.apply(holders);
        if reply != expected {
            return Err(format!("{reply:?}, expected {expected:?}; holders now {holders:?}"));
        }
        let writers = holders.values().filter(|holds| holds.writes > 0).count();
        if writers > 1 || (writers == 1 && holders.len() > 1) {
            return Err(format!("a writer is not alone: {holders:?}"));
        }
        let mut locks = picture(dump, |lock| vec![lock.to_owned(), "1".to_owned()])?;
        let stored = locks.remove(step.lock).unwrap_or_default();
        if !stored.lapsed.is_empty() {
            return Err(format!("lapsed holds are left: {stored:?}"));
        }
        let told = [("keys", by_keys(&stored)), ("INSPECT", by_inspect(inspect))];
        for (teller, told) in told {
            if told != by_replies(holders) {
                return Err(format!("{teller} tells {told:?}, replies {holders:?}"));
            }
        }
        Ok(())
    }

    /// Every hold is given back, by the one or the other.
    fn give_all_back(&mut self, con: &mut redis::Connection) {
        let mut id = 0;
        for (lock, holders) in std::mem::take(&mut self.locks) {
            for (owner, holds) in holders {
                let reads = (0..holds.reads).map(|_| Act::ReadUnlock);
                let writes = (0..holds.writes).map(|_| Act::WriteUnlock);
                for act in reads.chain(writes) {
                    id += 1;
                    let by = if id % 2 == 0 { By::Module } else { By::Redisson };
                    let step = Step { by, lock, owner, act, lease: 0, id };
                    let mut batch = Batch::default();
                    self.commands(&step).iter().for_each(|command| batch.add(command));
                    batch.words(&["DEL", &redisson::latch(lock, &id.to_string())]);
                    let unlocked = int(batch.exchange(con).good());
                    assert!(unlocked == 0 || unlocked == 1, "{step:?}");
                }
            }
        }
    }
}

/// What a step is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Held,
    Refused,
    Unlocked { free: bool },
    NotHeld,
    Any,
}

impl Answer {
    fn read(step: &Step, replies: &mut Replies) -> Result<Self, String> {
        let reply = replies.any();
        let locks = matches!(step.act, Act::ReadLock | Act::WriteLock);
        Ok(match (Meaning::of(&reply), &reply, step.act, step.by) {
            (_, _, Act::Lapse(_) | Act::Force, _) => Self::Any,
            (_, Value::Int(reads), Act::Renew, By::Redisson) => {
                if reads + int(replies.good()) > 0 {
                    Self::Held
                } else {
                    Self::NotHeld
                }
            }
            (Meaning::Done, ..) => Self::Held,
            (_, Value::Nil, _, By::Redisson) if locks => Self::Held,
            (_, Value::Nil, _, By::Redisson) => Self::NotHeld,
            (Meaning::NotHeld, ..) => Self::NotHeld,
            (_, Value::Int(left), Act::Upgrade | Act::ReadOnce, _) if *left > 0 => Self::Refused,
            (_, Value::Int(left), ..) if locks && *left > 0 => Self::Refused,
            (_, Value::Int(free @ 0..=1), ..) if !locks => Self::Unlocked { free: *free == 1 },
            _ => return Err(format!("{reply:?}")),
        })
    }
}

impl Step {
    fn random(random: &mut Random, id: u64) -> Self {
        let act = match random.weigh(&ACTS) {
            Act::Lapse(limit) => Act::Lapse(random.below_u32(limit)),
            act => act,
        };
        let shared = matches!(
            act,
            Act::ReadLock | Act::WriteLock | Act::ReadUnlock | Act::WriteUnlock | Act::Renew
        );
        let by = if shared { random.pick(&[By::Module, By::Redisson]) } else { By::Module };
        let (lock, owner) = (random.pick(&LOCKS), random.pick(&OWNERS));
        Self { by, lock, owner, act, lease: long_lease(random), id }
    }

    /// Changes who holds the lock, and says what the answer must be.
    fn apply(&self, holders: &mut Holders) -> Answer {
        let own = holders.get(self.owner).copied().unwrap_or_default();
        let others_write = own.writes == 0 && holders.values().any(|holds| holds.writes > 0);
        let alone = holders.keys().all(|owner| *owner == self.owner);
        let mut now = own;
        let mut answer = Answer::Held;
        match self.act {
            Act::ReadLock | Act::ReadOnce if others_write => answer = Answer::Refused,
            Act::ReadOnce if own.reads > 0 => {}
            Act::ReadLock | Act::ReadOnce => now.reads += 1,
            Act::WriteLock if own.writes > 0 || holders.is_empty() => now.writes += 1,
            Act::WriteLock => answer = Answer::Refused,
            Act::ReadUnlock if own.reads > 0 => now.reads -= 1,
            Act::WriteUnlock if own.writes > 0 => now.writes -= 1,
            Act::UnlockAll if own != Holds::default() => now = Holds::default(),
            Act::Renew if own != Holds::default() => {}
            Act::Upgrade if own.reads > 0 && alone => now.writes += 1,
            Act::Upgrade if own.reads > 0 => answer = Answer::Refused,
            Act::Downgrade if own.writes > 0 => {
                now = Holds { reads: own.reads.max(1), writes: 0 };
            }
            Act::ReadUnlock
            | Act::WriteUnlock
            | Act::UnlockAll
            | Act::Renew
            | Act::Upgrade
            | Act::Downgrade => answer = Answer::NotHeld,
            Act::Force => {
                holders.clear();
                return Answer::Any;
            }
            Act::Lapse(bits) => {
                lapse_holds(holders, bits);
                return Answer::Any;
            }
        }
        if now == Holds::default() {
            holders.remove(self.owner);
        } else {
            holders.insert(self.owner, now);
        }
        let unlocks = matches!(self.act, Act::ReadUnlock | Act::WriteUnlock | Act::UnlockAll);
        if answer == Answer::Held && unlocks {
            // A script calls a lock free that only the writer itself still reads.
            let by_script = self.act == Act::WriteUnlock && self.by == By::Redisson;
            let free = holders.is_empty() || (by_script && now.writes == 0);
            answer = Answer::Unlocked { free };
        }
        answer
    }
}

/// As [`LAPSE`] does.
fn lapse_holds(holders: &mut Holders, mut bits: u32) {
    let mut chosen = || {
        let bit = bits & 1;
        bits >>= 1;
        bit == 1
    };
    let reads: i64 = holders.values().map(|holds| holds.reads).sum();
    for holds in holders.values_mut() {
        holds.reads -= (0..holds.reads).map(|_| i64::from(chosen())).sum::<i64>();
    }
    let writes = holders.values().any(|holds| holds.writes > 0);
    if writes && reads == 0 && chosen() {
        holders.clear();
    }
    holders.retain(|_, holds| *holds != Holds::default());
}

/// Owner, kind, number of holds.
type Told = Vec<(String, String, i64)>;

fn by_replies(holders: &Holders) -> Told {
    let mut told = Told::new();
    for (owner, holds) in holders {
        told.extend((holds.reads > 0).then(|| entry(owner, "read", holds.reads)));
        told.extend((holds.writes > 0).then(|| entry(owner, "write", holds.writes)));
    }
    told.sort();
    told
}

fn by_keys(lock: &Lock) -> Told {
    let reads = lock.reads.iter().map(|(owner, ends)| entry(owner, "read", ends.len() as i64));
    let writes = lock.writes.iter().map(|(owner, count)| entry(owner, "write", *count));
    let mut told: Told = reads.chain(writes).collect();
    told.sort();
    told
}

fn by_inspect(reply: Value) -> Told {
    let mut told: Told = list(&map(reply)["holders"])
        .iter()
        .map(|holder| {
            let holder = map(holder);
            let owner = String::from_utf8(bytes(&holder["owner"])).expect("an owner of ours");
            entry(&owner, &text(&holder["kind"]), int(&holder["holds"]))
        })
        .collect();
    told.sort();
    told
}

fn entry(owner: &str, kind: &str, holds: i64) -> (String, String, i64) {
    (owner.to_owned(), kind.to_owned(), holds)
}
