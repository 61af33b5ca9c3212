//! Small plays on locks of their own, all at the same time, in which each client
//! knows beforehand who will wait and what will become of it.

use redis::Value;

use super::tally::{figure, Counts};
use support::wire::Wire;
use support::{int, map, wait_until, Random, Server};

/// How many plays go on at a time.
const STAGES: usize = 24;

/// What happens while two clients wait for the lock that a third one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plot {
    /// It is given back, by the one and then by the other.
    HandedOn,
    /// It is given back, and both get it at once.
    Shared,
    /// The first has waited long enough.
    TimeUp,
    /// CLIENT UNBLOCK.
    ToldToStop,
    /// The same, with ERROR.
    ToldWithError,
    /// The first is gone.
    Leaves,
    /// The holder's connection closes.
    HolderLeaves,
    /// The holder's lease runs out.
    Lapses,
    /// An operator breaks it open.
    Forced,
    /// The holder wants what the first has.
    Circle,
    /// It is downgraded and given back; then the two who waited want what the
    /// other has.
    TurnedAround,
    /// The holder reads, and goes on to write when the other reader is gone.
    Upgrade,
}

const PLOTS: [Plot; 12] = [
    Plot::HandedOn,
    Plot::Shared,
    Plot::TimeUp,
    Plot::ToldToStop,
    Plot::ToldWithError,
    Plot::Leaves,
    Plot::HolderLeaves,
    Plot::Lapses,
    Plot::Forced,
    Plot::Circle,
    Plot::TurnedAround,
    Plot::Upgrade,
];

struct Stage {
    lock: String,
    plot: Plot,
    holder: Wire,
    first: Wire,
    second: Wire,
    first_id: i64,
    /// How many holds the holder has.
    depth: u64,
}

/// Plays so many rounds. What its clients counted.
pub fn play(server: &Server, rounds: usize, seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let mut counts = Counts::default();
    let mut stages: Vec<Stage> =
        (0..STAGES).map(|number| Stage::new(server.port(), number)).collect();
    let mut operator = Wire::connect(server.port());
    for round in 0..rounds {
        for (number, stage) in stages.iter_mut().enumerate() {
            stage.plot = PLOTS[(round + number) % PLOTS.len()];
            stage.depth = random.between(1, 3);
            stage.take(&mut counts);
        }
        let mut waiting = 0;
        for begin in [Stage::first_waits, Stage::second_waits] {
            for stage in &mut stages {
                waiting += begin(stage);
            }
            // Whoever stands first was there first.
            wait_until("all wait", || figure(server, "waiters") == waiting);
        }
        counts.waits.waited += waiting;
        let elsewhere = stages.iter().filter(|stage| stage.plot == Plot::TurnedAround).count();
        assert_eq!(figure(server, "queues"), (STAGES + elsewhere) as u64);
        for stage in &mut stages {
            stage.act(server, &mut operator, &mut counts);
        }
        wait_until("nobody waits", || figure(server, "waiters") == 0);
        assert_eq!(figure(server, "queues"), 0);
    }
    counts
}

impl Stage {
    fn new(port: u16, number: usize) -> Self {
        let mut first = Wire::connect(port);
        let Value::Int(first_id) = first.ask("CLIENT ID") else {
            panic!("no id");
        };
        let (holder, second) = (Wire::connect(port), Wire::connect(port));
        let lock = format!("stage{number}");
        Self { lock, plot: Plot::HandedOn, holder, first, second, first_id, depth: 1 }
    }

    /// The holder takes the lock, and what else the plot wants is prepared.
    fn take(&mut self, counts: &mut Counts) {
        let lock = &self.lock;
        let (kind, lease) = match self.plot {
            Plot::Upgrade => ("RLOCK", "600000"),
            Plot::HolderLeaves => ("WLOCK", "600000 SESSION"),
            _ => ("WLOCK", "600000"),
        };
        let lines: Vec<String> = (0..self.depth)
            .map(|_| format!("RWLOCK.{kind} {lock} {lock}:holder {lease}"))
            .collect();
        self.holder.send_all(&lines);
        for _ in 0..self.depth {
            granted(&mut self.holder, counts);
        }
        match self.plot {
            // The first one has something that the holder will want.
            Plot::Circle => {
                self.first.send_all(&[format!("RWLOCK.WLOCK {lock}-other {lock}:first 600000")]);
                granted(&mut self.first, counts);
            }
            Plot::TurnedAround => {
                self.holder.send_all(&[format!("RWLOCK.WLOCK {lock}-other {lock}:holder 600000")]);
                granted(&mut self.holder, counts);
            }
            Plot::Upgrade => {
                self.first.send_all(&[format!("RWLOCK.RLOCK {lock} {lock}:first 600000")]);
                granted(&mut self.first, counts);
            }
            _ => {}
        }
        // Who cannot wait is refused.
        self.second.send_all(&[
            format!("RWLOCK.WLOCK {lock} {lock}:second 1000"),
            format!("RWLOCK.UNLOCK {lock} {lock}:second"),
        ]);
        integer(&mut self.second, counts);
        counts.tally.refused += 1;
        assert_eq!(error_code(&mut self.second, counts), "NOTHELD");
    }

    /// The first begins to wait. How many do.
    fn first_waits(&mut self) -> u64 {
        let lock = &self.lock;
        match self.plot {
            // Its time would be up before all are there.
            Plot::TimeUp => return 0,
            Plot::Upgrade => {
                self.holder
                    .send_all(&[format!("RWLOCK.UPGRADE {lock} {lock}:holder 600000 BLOCK 0")]);
            }
            plot => {
                let kind = if plot == Plot::Shared { "R" } else { "W" };
                self.first
                    .send_all(&[format!("RWLOCK.{kind}LOCK {lock} {lock}:first 600000 BLOCK 0")]);
            }
        }
        1
    }

    /// The second begins to wait.
    fn second_waits(&mut self) -> u64 {
        let lock = &self.lock;
        let (which, kind) = match self.plot {
            Plot::TurnedAround => ("-other", "W"),
            Plot::Shared => ("", "R"),
            _ => ("", "W"),
        };
        let owner = format!("{lock}:second");
        self.second.send_all(&[format!("RWLOCK.{kind}LOCK {lock}{which} {owner} 600000 BLOCK 0")]);
        1
    }

    fn act(&mut self, server: &Server, operator: &mut Wire, counts: &mut Counts) {
        let lock = self.lock.clone();
        match self.plot {
            Plot::HandedOn => self.give_all(counts),
            Plot::Shared => {
                self.give_all(counts);
                self.granted_first(counts);
                self.granted_second(counts);
                self.unlock_first(counts);
                return self.unlock_second(counts);
            }
            Plot::TimeUp => {
                self.first.send_all(&[format!("RWLOCK.WLOCK {lock} {lock}:first 600000 BLOCK 20")]);
                counts.waits.waited += 1;
                integer(&mut self.first, counts);
                counts.tally.timeouts += 1;
                self.give_all(counts);
                return self.end_with_second(counts);
            }
            Plot::ToldToStop => {
                let id = self.first_id;
                assert_eq!(operator.ask(&format!("CLIENT UNBLOCK {id}")), Value::Int(1));
                integer(&mut self.first, counts);
                counts.tally.timeouts += 1;
                self.give_all(counts);
                return self.end_with_second(counts);
            }
            Plot::ToldWithError => {
                let id = self.first_id;
                assert_eq!(operator.ask(&format!("CLIENT UNBLOCK {id} ERROR")), Value::Int(1));
                assert_eq!(error_code(&mut self.first, counts), "UNBLOCKED");
                self.give_all(counts);
                return self.end_with_second(counts);
            }
            Plot::Leaves => {
                self.first.end();
                assert_eq!(self.first.reply(), None);
                self.first = Wire::connect(server.port());
                let Value::Int(id) = self.first.ask("CLIENT ID") else {
                    panic!("no id");
                };
                self.first_id = id;
                self.give_all(counts);
                return self.end_with_second(counts);
            }
            Plot::HolderLeaves => {
                self.holder.end();
                assert_eq!(self.holder.reply(), None);
                self.holder = Wire::connect(server.port());
                counts.tally.disconnect_releases += self.depth;
            }
            Plot::Lapses => {
                let shortened = operator.ask(&format!("PEXPIRE {lock} 20"));
                assert_eq!(shortened, Value::Int(1));
                counts.tally.lapsed += self.depth;
            }
            Plot::Forced => {
                let forced = operator.ask(&format!("RWLOCK.FORCEUNLOCK {lock}"));
                assert_eq!(forced, Value::Int(1));
                counts.commands += 1;
                counts.tally.released += self.depth;
            }
            Plot::Circle => {
                let line = format!("RWLOCK.WLOCK {lock}-other {lock}:holder 600000 BLOCK 0");
                self.holder.send_all(&[line]);
                assert_eq!(error_code(&mut self.holder, counts), "DEADLOCK");
                counts.tally.deadlocks += 1;
                self.give_all(counts);
                self.granted_first(counts);
                self.first.send_all(&[format!("RWLOCK.UNLOCK {lock}-other {lock}:first")]);
                integer(&mut self.first, counts);
                counts.tally.released += 1;
                self.unlock_first(counts);
                return self.end_with_second(counts);
            }
            Plot::TurnedAround => return self.turn_around(counts),
            Plot::Upgrade => {
                let line = format!("RWLOCK.UPGRADE {lock} {lock}:first 600000 BLOCK 0");
                self.first.send_all(&[line, format!("RWLOCK.UNLOCK {lock} {lock}:first")]);
                assert_eq!(error_code(&mut self.first, counts), "DEADLOCK");
                counts.tally.deadlocks += 1;
                integer(&mut self.first, counts);
                counts.tally.released += 1;
                granted_late(&mut self.holder, counts);
                self.depth += 1;
                self.give_all(counts);
                return self.end_with_second(counts);
            }
        }
        self.granted_first(counts);
        self.unlock_first(counts);
        self.end_with_second(counts);
    }

    fn turn_around(&mut self, counts: &mut Counts) {
        let lock = self.lock.clone();
        self.holder.send_all(&[
            format!("RWLOCK.DOWNGRADE {lock} {lock}:holder 600000"),
            format!("RWLOCK.UNLOCK {lock} {lock}:holder READ"),
            format!("RWLOCK.UNLOCK {lock}-other {lock}:holder"),
        ]);
        assert_eq!(self.holder.reply(), Some(Value::Okay));
        counts.commands += 1;
        counts.tally.released += self.depth;
        for _ in 0..2 {
            integer(&mut self.holder, counts);
            counts.tally.released += 1;
        }
        self.granted_first(counts);
        self.granted_second(counts);
        // The first waits for the second, who closes the circle.
        self.first.send_all(&[format!("RWLOCK.WLOCK {lock}-other {lock}:first 600000 BLOCK 0")]);
        counts.waits.waited += 1;
        wait_until("the first waits", || {
            let other = map(self.holder.ask(&format!("RWLOCK.INSPECT {lock}-other")));
            int(&other["waiters_total"]) == 1
        });
        self.second.send_all(&[
            format!("RWLOCK.WLOCK {lock} {lock}:second 600000 BLOCK 0"),
            format!("RWLOCK.UNLOCK {lock}-other {lock}:second"),
        ]);
        assert_eq!(error_code(&mut self.second, counts), "DEADLOCK");
        counts.tally.deadlocks += 1;
        integer(&mut self.second, counts);
        counts.tally.released += 1;
        self.granted_first(counts);
        self.first.send_all(&[
            format!("RWLOCK.UNLOCK {lock}-other {lock}:first"),
            format!("RWLOCK.UNLOCK {lock} {lock}:first"),
        ]);
        for _ in 0..2 {
            integer(&mut self.first, counts);
            counts.tally.released += 1;
        }
    }

    fn give_all(&mut self, counts: &mut Counts) {
        self.holder.send_all(&[format!("RWLOCK.UNLOCK {0} {0}:holder ALL", self.lock)]);
        integer(&mut self.holder, counts);
        counts.tally.released += self.depth;
    }

    fn end_with_second(&mut self, counts: &mut Counts) {
        self.granted_second(counts);
        self.unlock_second(counts);
    }

    fn granted_first(&mut self, counts: &mut Counts) {
        granted_late(&mut self.first, counts);
    }

    fn granted_second(&mut self, counts: &mut Counts) {
        granted_late(&mut self.second, counts);
    }

    fn unlock_first(&mut self, counts: &mut Counts) {
        self.first.send_all(&[format!("RWLOCK.UNLOCK {0} {0}:first", self.lock)]);
        integer(&mut self.first, counts);
        counts.tally.released += 1;
    }

    fn unlock_second(&mut self, counts: &mut Counts) {
        self.second.send_all(&[format!("RWLOCK.UNLOCK {0} {0}:second", self.lock)]);
        integer(&mut self.second, counts);
        counts.tally.released += 1;
    }
}

fn granted(wire: &mut Wire, counts: &mut Counts) {
    assert_eq!(wire.reply(), Some(Value::Okay));
    counts.commands += 1;
    counts.tally.acquired += 1;
}

fn granted_late(wire: &mut Wire, counts: &mut Counts) {
    granted(wire, counts);
    counts.waits.granted += 1;
}

fn integer(wire: &mut Wire, counts: &mut Counts) {
    let reply = wire.reply();
    assert!(matches!(reply, Some(Value::Int(_))), "{reply:?}");
    counts.commands += 1;
}

fn error_code(wire: &mut Wire, counts: &mut Counts) -> String {
    counts.commands += 1;
    match wire.reply() {
        Some(Value::ServerError(error)) => error.code().to_owned(),
        other => panic!("{other:?} is no error"),
    }
}
