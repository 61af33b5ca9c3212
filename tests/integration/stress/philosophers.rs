//! A hundred philosophers at a round table, with a fork between each two of them. A meal takes
//! both forks beside the plate.
//!
//! With both forks by one MLOCK nobody waits in a circle. With one WLOCK for each fork, the
//! left one first, all can hold one fork and wait for the other: that is a deadlock, and it is
//! found.
//!
//! One thread has all connections, so that what it hears has an order: a fork that it knows
//! to be in use can not be granted again. `RWLOCK_MEALS` says how many meals there are.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use redis::Connection;
use serial_test::serial;

use crate::monitoring::figures::{assert_info_at_rest, info_figure};
use support::observe::run;
use support::wire::{readable, Wire};
use support::{fresh_seed, int, list, number_from_environment, Random, Server, DEADLINE};

const PHILOSOPHERS: usize = 100;

/// In ms: longer than any of the tests takes.
const LEASE: u64 = 600_000;

/// How many meals there are when nobody says.
const MEALS: u64 = 100_000;

/// The fork to the left of a plate; that to the right is the left one of the next.
fn left(plate: usize) -> usize {
    plate
}

fn right(plate: usize) -> usize {
    (plate + 1) % PHILOSOPHERS
}

fn fork(number: usize) -> String {
    format!("fork:{number}")
}

fn take_both(plate: usize) -> String {
    let (left, right) = (fork(left(plate)), fork(right(plate)));
    format!("RWLOCK.MLOCK {plate} {LEASE} WRITE 2 {left} {right} BLOCK 0")
}

fn give_both(plate: usize) -> String {
    let (left, right) = (fork(left(plate)), fork(right(plate)));
    format!("RWLOCK.MUNLOCK {plate} WRITE 2 {left} {right}")
}

fn take(plate: usize, number: usize) -> String {
    format!("RWLOCK.WLOCK {} {plate} {LEASE} BLOCK 0", fork(number))
}

fn give(plate: usize, number: usize) -> String {
    format!("RWLOCK.UNLOCK {} {plate}", fork(number))
}

/// The philosophers, each with a connection, and what lies in whose hand.
struct Table {
    wires: Vec<Wire>,
    /// The philosopher that holds each fork, as far as is known.
    in_use: Vec<Option<usize>>,
    meals: Vec<u64>,
    /// When anything was heard last.
    heard: Instant,
}

impl Table {
    fn laid(server: &Server) -> Self {
        let wires = (0..PHILOSOPHERS).map(|_| Wire::connect(server.port())).collect();
        let (in_use, meals) = (vec![None; PHILOSOPHERS], vec![0; PHILOSOPHERS]);
        Self { wires, in_use, meals, heard: Instant::now() }
    }

    /// The replies that have come, each with the plate that it came to.
    fn listen(&mut self) -> Vec<(usize, String)> {
        let mut heard = Vec::new();
        let ready = readable(self.wires.iter());
        for (plate, _) in ready.into_iter().enumerate().filter(|(_, ready)| *ready) {
            let received = self.wires[plate].receive();
            assert!(!received.closed, "the connection of {plate} is closed");
            heard.extend(received.replies.into_iter().map(|reply| (plate, reply)));
        }
        if !heard.is_empty() {
            self.heard = Instant::now();
        }
        assert!(self.heard.elapsed() < DEADLINE, "nobody eats: {:?}", self.in_use);
        heard
    }

    #[track_caller]
    fn picks_up(&mut self, plate: usize, fork: usize) {
        let other = self.in_use[fork].replace(plate);
        assert_eq!(other, None, "fork {fork} is granted to {plate} as well");
    }

    #[track_caller]
    fn puts_down(&mut self, plate: usize, fork: usize) {
        assert_eq!(self.in_use[fork].take(), Some(plate), "fork {fork}");
    }
}

/// All plates in a random order.
fn shuffled(random: &mut Random) -> Vec<usize> {
    let mut plates: Vec<usize> = (0..PHILOSOPHERS).collect();
    (0..PHILOSOPHERS).map(|_| plates.swap_remove(random.below_len(plates.len()))).collect()
}

/// Nobody waits, and all forks lie on the table.
fn assert_cleared(server: &Server, con: &mut Connection) {
    assert_eq!(list(run(con, "RWLOCK.QUEUES")), []);
    assert_info_at_rest(server);
    assert_eq!(int(run(con, "DBSIZE")), 0);
}

/// A dinner at which each takes both forks in one step.
struct Dinner<'t> {
    table: &'t mut Table,
    random: Random,
    /// The number of meals.
    meals: u64,
    eating: BTreeSet<usize>,
    /// Those that have put down both forks and will ask for them again.
    thinking: BTreeSet<usize>,
    /// Those that have not had their last meal.
    present: u64,
    /// How many MUNLOCKs are not answered.
    returning: u64,
}

impl<'t> Dinner<'t> {
    /// Has all of them eat until there were so many meals.
    fn hold(table: &'t mut Table, meals: u64, random: Random) {
        let (eating, thinking) = (BTreeSet::new(), BTreeSet::new());
        let present = PHILOSOPHERS as u64;
        let mut dinner = Self { table, random, meals, eating, thinking, present, returning: 0 };
        // Not in the order of the table: then each would wait for the one before, and one
        // would eat at a time.
        for plate in shuffled(&mut dinner.random) {
            dinner.table.wires[plate].send(&take_both(plate));
        }
        while dinner.returning + dinner.present > 0 {
            for (plate, reply) in dinner.table.listen() {
                dinner.hear(plate, &reply);
            }
            dinner.go_on();
        }
    }

    fn hear(&mut self, plate: usize, reply: &str) {
        match reply {
            "+OK" => {
                self.table.picks_up(plate, left(plate));
                self.table.picks_up(plate, right(plate));
                self.eating.insert(plate);
            }
            "*2\r\n:1\r\n:1" => self.returning -= 1,
            other => panic!("{plate}: {other:?}"),
        }
    }

    /// Most have eaten by the next look at the connections, some go on for a while.
    fn go_on(&mut self) {
        for plate in self.eating.clone() {
            if self.random.chance(80) {
                self.finish(plate);
            }
        }
        for plate in self.thinking.clone() {
            if self.random.chance(50) {
                self.thinking.remove(&plate);
                self.table.wires[plate].send(&take_both(plate));
            }
        }
    }

    fn finish(&mut self, plate: usize) {
        self.eating.remove(&plate);
        self.table.meals[plate] += 1;
        self.table.puts_down(plate, left(plate));
        self.table.puts_down(plate, right(plate));
        self.returning += 1;
        let wire = &mut self.table.wires[plate];
        // Each of those that are present eats once more.
        if self.table.meals.iter().sum::<u64>() + self.present > self.meals {
            wire.send(&give_both(plate));
            self.present -= 1;
        } else if self.random.chance(70) {
            wire.send_all(&[give_both(plate), take_both(plate)]);
        } else {
            wire.send(&give_both(plate));
            self.thinking.insert(plate);
        }
    }
}

// It keeps a server and a thread busy for as long as it lasts: with another one of this kind
// it would take the processors from the tests that run beside it.
#[test]
#[serial]
fn philosophers_who_take_both_forks_in_one_step_all_eat() {
    let meals = number_from_environment("RWLOCK_MEALS").unwrap_or(MEALS);
    let seed = number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let server = Server::builder().start();
    let mut table = Table::laid(&server);
    let started = Instant::now();
    Dinner::hold(&mut table, meals, Random::new(seed));
    let took = started.elapsed();
    assert_eq!(table.meals.iter().sum::<u64>(), meals);
    let (least, most) = (table.meals.iter().min(), table.meals.iter().max());
    println!("{meals} meals in {took:?}, from {least:?} to {most:?} for each owner");
    assert!(table.meals.iter().all(|meals| *meals > 0), "{:?}", table.meals);
    assert_eq!(info_figure(&server, "deadlocks"), 0);
    assert_cleared(&server, &mut server.connection());
}

/// What a philosopher waits to be told.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Left,
    /// The left fork, after it was put down to end a deadlock.
    LeftAgain,
    Right,
    /// A fork is put down.
    Return,
}

/// One meal of each, one fork after the other.
struct Round<'t> {
    table: &'t mut Table,
    /// The requests of each that are not answered, oldest first.
    asked: Vec<VecDeque<Asked>>,
    deadlocks: u64,
}

impl<'t> Round<'t> {
    /// All take the left fork, then all ask for the right one, and the last closes the circle.
    /// Gives how many deadlocks were found until all have eaten.
    fn play(table: &'t mut Table, random: &mut Random) -> u64 {
        let mut round = Self { table, asked: vec![VecDeque::new(); PHILOSOPHERS], deadlocks: 0 };
        (0..PHILOSOPHERS).for_each(|plate| round.ask(plate, Asked::Left));
        round.hear_all();
        assert!(round.table.in_use.iter().all(Option::is_some), "{:?}", round.table.in_use);
        shuffled(random).into_iter().for_each(|plate| round.ask(plate, Asked::Right));
        round.hear_all();
        round.deadlocks
    }

    fn ask(&mut self, plate: usize, what: Asked) {
        let fork = if let Asked::Right = what { right(plate) } else { left(plate) };
        self.table.wires[plate].send(&take(plate, fork));
        self.asked[plate].push_back(what);
    }

    fn put_down(&mut self, plate: usize, fork: usize) {
        self.table.puts_down(plate, fork);
        self.table.wires[plate].send(&give(plate, fork));
        self.asked[plate].push_back(Asked::Return);
    }

    fn hear_all(&mut self) {
        while self.asked.iter().any(|asked| !asked.is_empty()) {
            for (plate, reply) in self.table.listen() {
                let asked = self.asked[plate].pop_front();
                self.hear(plate, asked.expect("a request for each reply"), &reply);
            }
        }
    }

    fn hear(&mut self, plate: usize, asked: Asked, reply: &str) {
        match (asked, reply) {
            (Asked::Return, ":1") => {}
            (Asked::Left, "+OK") => self.table.picks_up(plate, left(plate)),
            (Asked::LeftAgain, "+OK") => {
                self.table.picks_up(plate, left(plate));
                self.ask(plate, Asked::Right);
            }
            (Asked::Right, "+OK") => {
                self.table.picks_up(plate, right(plate));
                self.table.meals[plate] += 1;
                self.put_down(plate, left(plate));
                self.put_down(plate, right(plate));
            }
            (Asked::Right, error) if error.starts_with("-DEADLOCK ") => {
                self.deadlocks += 1;
                self.put_down(plate, left(plate));
                self.ask(plate, Asked::LeftAgain);
            }
            other => panic!("{plate}: {other:?}"),
        }
    }
}

#[test]
fn philosophers_who_take_one_fork_after_the_other_are_in_a_deadlock_each_round() {
    const ROUNDS: u64 = 100;
    let seed = number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let server = Server::builder().start();
    let mut table = Table::laid(&server);
    for round in 1..=ROUNDS {
        let deadlocks = Round::play(&mut table, &mut random);
        // One philosopher gives way, and then there is no circle any more.
        assert_eq!(deadlocks, 1, "round {round}");
        assert!(table.meals.iter().all(|meals| *meals == round), "{:?}", table.meals);
    }
    assert_eq!(info_figure(&server, "deadlocks"), ROUNDS);
    assert_cleared(&server, &mut server.connection());
}
