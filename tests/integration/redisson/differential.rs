//! The module against the scripts of Redisson, over long random sequences.
//!
//! `RWLOCK_STEPS` says how many steps; `RWLOCK_SEED` repeats those of one seed.

mod meaning;
mod picture;
mod reference;
mod runs;
mod shared;
mod step;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use redis::{Connection, Value};

use meaning::Meaning;
use picture::{picture, Lock, Picture, DUMP};
use reference::{reference, LAPSE};
use runs::{seeds, steps_per_seed};
use step::{Step, OWNERS};
use support::redisson::{self, Redisson};
use support::wire::{Batch, Replies};
use support::Random;
use support::{assert_ok, call, text, Call, Server};

/// How many steps one run makes when nobody says.
const STEPS: u64 = 24_000;

/// From this many steps on, everything that can happen must have happened.
const ENOUGH: u64 = 20_000;

/// How many steps go to the server at once.
const AT_ONCE: u64 = 40;

/// How many steps a failure shows.
const REMEMBERED: usize = 12;

/// The module works in one database, the scripts in the other.
const MODULE: &str = "0";
const SCRIPTS: &str = "1";

/// The time that steps take apart, both sides count the same ms, rounded.
const ROUNDING: i64 = 2;

#[test]
fn the_module_does_what_the_scripts_do() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let steps = steps_per_seed(STEPS);
    let seeds = seeds();
    let mut tally = Tally::default();
    for &seed in &seeds {
        assert_ok(call!(con, "FLUSHALL"));
        if let Err(report) = Comparison::new(&mut con).run(seed, steps, &mut tally) {
            panic!("{report}\nagain: RWLOCK_SEED={seed} RWLOCK_STEPS={}", steps * 4);
        }
    }
    let total = steps * seeds.len() as u64;
    println!("{total} steps compared without a difference, seeds {seeds:?}");
    println!("{}", tally.text());
    if total >= ENOUGH {
        tally.check();
    }
}

struct Comparison<'c> {
    con: &'c mut Connection,
    reference: String,
    lapse: String,
    dump: String,
    module: Picture,
    scripts: Picture,
    /// How far apart a lock's ends may be on the two sides, in ms: as long as
    /// all its steps took since it was last free. They add up, for a script
    /// that reads a TTL and sets it again shifts an end by the time between
    /// (Redis 7.0 does not stop the clock for that).
    slack: BTreeMap<&'static str, i64>,
    history: VecDeque<String>,
}

impl<'c> Comparison<'c> {
    fn new(con: &'c mut Connection) -> Self {
        let mut load = |script: &str| redisson::load(con, script).expect("load a script");
        let (reference, lapse, dump) = (load(&reference()), load(LAPSE), load(DUMP));
        Self {
            con,
            reference,
            lapse,
            dump,
            module: Picture::new(),
            scripts: Picture::new(),
            slack: BTreeMap::new(),
            history: VecDeque::new(),
        }
    }

    fn run(&mut self, seed: u64, steps: u64, tally: &mut Tally) -> Result<(), String> {
        let mut random = Random::new(seed);
        let mut done = 0;
        while done < steps {
            let steps: Vec<Step> =
                (0..AT_ONCE.min(steps - done)).map(|_| Step::random(&mut random)).collect();
            let mut batch = Batch::default();
            for step in &steps {
                self.write(&mut batch, step);
            }
            let mut replies = batch.exchange(self.con);
            for step in &steps {
                done += 1;
                self.check(step, &mut replies, tally).map_err(|difference| {
                    let history =
                        self.history.iter().fold(String::new(), |text, line| text + line + "\n");
                    format!("step {done}: {difference}\nthe last steps:\n{history}")
                })?;
            }
        }
        Ok(())
    }

    fn write(&self, batch: &mut Batch, step: &Step) {
        batch.words(&["SELECT", MODULE]);
        batch.words(&["TIME"]);
        batch.add(&step.to_module(&self.lapse));
        batch.words(&["SELECT", SCRIPTS]);
        batch.add(&step.to_scripts(&self.reference, &self.lapse));
        batch.words(&["TIME"]);
        if let Some(seconds) = step.sleep() {
            batch.words(&["DEBUG", "SLEEP", seconds]);
        }
        if step.looks() {
            self.write_look(batch);
        }
    }

    fn write_look(&self, batch: &mut Batch) {
        batch.words(&["EVALSHA", &self.dump, "0"]);
        batch.words(&["SELECT", MODULE]);
        batch.words(&["EVALSHA", &self.dump, "0"]);
    }

    /// Reads the replies to one step and compares. The error says what differs.
    fn check(
        &mut self,
        step: &Step,
        replies: &mut Replies,
        tally: &mut Tally,
    ) -> Result<(), String> {
        replies.good();
        let started = replies.time();
        let by_module = replies.any();
        replies.good();
        let by_scripts = replies.any();
        let took = replies.time() - started;
        if step.sleep().is_some() {
            replies.good();
        }
        self.remember(format!("{step:?}: {by_module:?} / {by_scripts:?}, {took} ms"));
        let slack = self.slack_after(step, took);
        same_meaning(step, &by_module, &by_scripts, slack)?;
        tally.count(step, &by_module);
        tally.tolerated(slack);
        if !step.looks() {
            return Ok(());
        }
        let scripts = replies.good();
        replies.good();
        let module = replies.good();
        self.module = picture(module, |lock| vec![lock.to_owned()])
            .map_err(|odd| format!("module: {odd}"))?;
        self.scripts = picture(scripts, |lock| vec![lock.to_owned(), "1".to_owned()])
            .map_err(|odd| format!("scripts: {odd}"))?;
        self.same_locks()?;
        self.nothing_lapsed_stays(step)
    }

    fn slack_after(&mut self, step: &Step, took: i64) -> i64 {
        let slack = self.slack.entry(step.lock).or_insert(ROUNDING);
        if !self.module.contains_key(step.lock) && !self.scripts.contains_key(step.lock) {
            *slack = ROUNDING;
        }
        *slack += took;
        *slack
    }

    fn same_locks(&self) -> Result<(), String> {
        let names = |picture: &Picture| picture.keys().cloned().collect::<Vec<_>>();
        if names(&self.module) != names(&self.scripts) {
            return Err(format!("locks\n{:#?}\n{:#?}", self.module, self.scripts));
        }
        for (name, module) in &self.module {
            let scripts = &self.scripts[name];
            let slack = self.slack.get(name.as_str()).copied().unwrap_or_default();
            if !same_lock(module, scripts, slack) {
                return Err(format!("{name:?}, slack {slack} ms\n{module:?}\n{scripts:?}"));
            }
        }
        Ok(())
    }

    /// The module has removed what it met: at least the owner's own. (A lock
    /// that is forced open knows no owner.)
    fn nothing_lapsed_stays(&self, step: &Step) -> Result<(), String> {
        let lapsed =
            self.module.get(step.lock).is_some_and(|lock| lock.lapsed.contains(step.owner));
        match step.sleep() {
            None if lapsed && !step.name().starts_with("FORCE") => {
                Err(format!("a lapsed hold of {step:?} is left: {:?}", self.module))
            }
            _ => Ok(()),
        }
    }

    fn remember(&mut self, line: String) {
        self.history.push_back(line);
        if self.history.len() > REMEMBERED {
            self.history.pop_front();
        }
    }
}

fn same_meaning(step: &Step, module: &Value, scripts: &Value, slack: i64) -> Result<(), String> {
    let same = match (Meaning::of(module), Meaning::of(scripts)) {
        // What a lapse answers is its script's business.
        _ if step.name() == "lapse" => true,
        (Meaning::Odd(_), _) => false,
        // A refusal: the ms left.
        (Meaning::Number(module), Meaning::Number(scripts))
            if matches!(step.name(), "RLOCK" | "WLOCK" | "brief") =>
        {
            module > 0 && (module - scripts).abs() <= slack
        }
        (module, scripts) => module == scripts,
    };
    if same {
        Ok(())
    } else {
        Err(format!("replies {module:?} and {scripts:?} to {step:?}"))
    }
}

fn same_lock(module: &Lock, scripts: &Lock, slack: i64) -> bool {
    let near = |module: i64, scripts: i64| module > 0 && (module - scripts).abs() <= slack;
    let same_ends = |module: &Vec<i64>, scripts: &Vec<i64>| {
        module.len() == scripts.len() && module.iter().zip(scripts).all(|(&m, &s)| near(m, s))
    };
    module.mode == scripts.mode
        && near(module.end, scripts.end)
        && module.writes == scripts.writes
        && OWNERS.iter().all(|&owner| match (module.reads.get(owner), scripts.reads.get(owner)) {
            (None, None) => true,
            (Some(module), Some(scripts)) => same_ends(module, scripts),
            _ => false,
        })
}

/// How often what was answered.
#[derive(Default)]
struct Tally(BTreeMap<(&'static str, &'static str), u64>);

impl Tally {
    fn count(&mut self, step: &Step, reply: &Value) {
        let acquires = matches!(step.name(), "RLOCK" | "WLOCK");
        let answer = match Meaning::of(reply) {
            _ if step.sleep().is_some() => "done",
            Meaning::Done => "done",
            Meaning::NotHeld => "not held",
            Meaning::Number(_) if acquires => "refused",
            Meaning::Number(0) => "0",
            Meaning::Number(_) => "1",
            Meaning::Odd(_) => "odd",
        };
        *self.0.entry((step.name(), answer)).or_default() += 1;
    }

    /// How exact the comparison of ends was.
    fn tolerated(&mut self, slack: i64) {
        let bound = if slack <= 5 { "up to 5 ms" } else { "more" };
        *self.0.entry(("tolerance", bound)).or_default() += 1;
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for ((step, answer), count) in &self.0 {
            let separator = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{separator}{step} {answer} {count}");
        }
        text
    }

    /// A comparison of nothing finds no difference.
    fn check(&self) {
        let unlocks = ["UNLOCK", "UNLOCK READ", "UNLOCK WRITE", "UNLOCK ALL"];
        let expected = [("RLOCK", "refused"), ("WLOCK", "refused"), ("brief", "done")]
            .into_iter()
            .chain([("lapse", "done"), ("RENEW", "not held"), ("DOWNGRADE", "not held")])
            .chain(["RLOCK", "WLOCK", "RENEW", "DOWNGRADE"].map(|command| (command, "done")))
            .chain(unlocks.into_iter().flat_map(|u| ["0", "1", "not held"].map(|a| (u, a))))
            .chain(["FORCEUNLOCK", "FORCEUNLOCK READ"].map(|command| (command, "1")));
        for both in expected {
            assert!(self.0.get(&both).is_some_and(|count| *count > 0), "never: {both:?}");
        }
    }
}

/// The calls are told apart from what is sent by the counters of INFO.
#[test]
fn the_scripts_make_as_many_calls_as_those_they_stand_for() {
    let server = Server::builder().start();
    let mut con = server.connection();
    let scripts = Redisson::load(&mut con).expect("load the scripts");
    let lock = "orders";
    let expected = [
        ("read lock, free", 6, scripts.read_lock(lock, "a", 60_000)),
        ("read lock, read", 6, scripts.read_lock(lock, "b", 60_000)),
        ("write lock, read", 2, scripts.write_lock(lock, "a", 60_000)),
        // Two fields and one hold are left to look at.
        ("read unlock, others left", 13, scripts.read_unlock(lock, "a", "1")),
        ("read unlock, last", 10, scripts.read_unlock(lock, "b", "2")),
        ("read unlock, repeated", 1, scripts.read_unlock(lock, "b", "2")),
        ("read unlock, free", 4, scripts.read_unlock(lock, "b", "3")),
        ("write lock, free", 4, scripts.write_lock(lock, "a", 60_000)),
        ("read unlock, not held", 3, scripts.read_unlock(lock, "b", "4")),
        ("write lock, again", 5, scripts.write_lock(lock, "a", 60_000)),
        ("write lock, write", 3, scripts.write_lock(lock, "b", 60_000)),
        ("read lock, write", 3, scripts.read_lock(lock, "b", 60_000)),
        ("write unlock, not held", 3, scripts.write_unlock(lock, "b", "5")),
        ("write unlock, one of two", 6, scripts.write_unlock(lock, "a", "6")),
        ("read lock, own write", 7, scripts.read_lock(lock, "a", 60_000)),
        ("write unlock, reads left", 8, scripts.write_unlock(lock, "a", "7")),
        ("write unlock, read", 2, scripts.write_unlock(lock, "a", "8")),
        ("force unlock, other mode", 1, scripts.force_write_unlock(lock)),
        ("force unlock, read", 3, scripts.force_read_unlock(lock)),
        ("write lock, free", 4, scripts.write_lock(lock, "a", 60_000)),
        ("write unlock, last", 9, scripts.write_unlock(lock, "a", "9")),
        ("write unlock, repeated", 1, scripts.write_unlock(lock, "a", "9")),
        ("write unlock, free", 4, scripts.write_unlock(lock, "a", "10")),
    ];
    for (what, calls, command) in expected {
        assert_ok(call!(con, "CONFIG", "RESETSTAT"));
        let reply = con.call(&command).expect("run a script");
        assert_eq!(calls_in_script(&mut con), calls, "{what}: {reply:?}");
    }
}

/// How many commands ran since the counters were reset, but for the script
/// and the reset.
fn calls_in_script(con: &mut Connection) -> u64 {
    let stats = text(call!(con, "INFO", "commandstats"));
    let calls = |line: &str| -> Option<u64> {
        let (name, counts) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let inside = !["evalsha", "config|resetstat"].contains(&name);
        let calls = counts.strip_prefix("calls=")?.split(',').next()?;
        inside.then(|| calls.parse().expect("a number of calls"))
    };
    stats.lines().filter_map(calls).sum()
}
