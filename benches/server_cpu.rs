//! What a lock and its unlock cost the server: the module against Lua that
//! stands for Redisson's scripts, by the server's own count of the time that it
//! spends in each command (INFO commandstats).
//!
//! One connection sends far more than the server has answered, so that it is
//! never idle; the two take turns, so that whatever else the machine does falls
//! on both. Run it by `make bench`.

#![expect(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[expect(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;
#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/integration/redisson.rs"]
mod redisson;

use harness::{assert_ok, call, text, Builder, Server};
use redis::{Cmd, Connection, ConnectionLike, Value};
use redisson::{latch, Redisson, DEFAULT_LEASE};

/// How often each side has its turn.
const ROUNDS: usize = 9;

/// How many pairs a turn has.
const PAIRS: usize = 10_000;

/// How many locks the pairs go round.
const LOCKS: usize = 100;

/// A Redisson client and a thread of it.
const OWNER: &str = "b1b7c2de-9a57-4b5c-8f5e-0d8a3f6f2c11:42";

/// The kind of the pair.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

/// A turn: what is sent, and the commands whose time counts.
struct Turn {
    bytes: Vec<u8>,
    commands: usize,
    counted: &'static [&'static str],
}

fn main() {
    println!("server CPU in us for a pair of lock and unlock, {PAIRS} pairs a round");
    println!("median of {ROUNDS} rounds, (least..most)\n");
    compare("without persistence", Server::builder());
    let everysec = Server::builder().config("appendonly", "yes").config("appendfsync", "everysec");
    compare("appendonly yes, appendfsync everysec", everysec);
}

fn compare(title: &str, builder: Builder) {
    let server = builder.start();
    let mut con = server.connection();
    let scripts = Redisson::load(&mut con).expect("load the scripts");
    let version = server.version();
    let name = if version.valkey { "Valkey" } else { "Redis" };
    println!("{name} {}.{}, {title}", version.major, version.minor);
    println!("{:<7}{:>22}{:>22}{:>22}", "pair", "module", "scripts", "ratio");
    for (label, kind) in [("read", Kind::Read), ("write", Kind::Write)] {
        let turns = [module(kind), lua(kind, &scripts)];
        // Warm up: the turns before the first that counts.
        for turn in &turns {
            cost(&mut con, turn);
        }
        let rounds: Vec<[f64; 2]> =
            (0..ROUNDS).map(|_| turns.each_ref().map(|turn| cost(&mut con, turn))).collect();
        let columns = [
            rounds.iter().map(|[module, _]| *module).collect(),
            rounds.iter().map(|[_, scripts]| *scripts).collect(),
            rounds.iter().map(|[module, scripts]| scripts / module).collect(),
        ]
        .map(spread);
        println!("{label:<7}{:>22}{:>22}{:>22}", columns[0], columns[1], columns[2]);
    }
    println!();
}

fn module(kind: Kind) -> Turn {
    let (lock, word, counted): (_, _, &[&str]) = match kind {
        Kind::Read => ("RWLOCK.RLOCK", "READ", &["rwlock.rlock", "rwlock.unlock"]),
        Kind::Write => ("RWLOCK.WLOCK", "WRITE", &["rwlock.wlock", "rwlock.unlock"]),
    };
    turn(counted, |name, _| {
        let mut take = redis::cmd(lock);
        take.arg(name).arg(OWNER).arg(DEFAULT_LEASE);
        let mut give = redis::cmd("RWLOCK.UNLOCK");
        give.arg(name).arg(OWNER).arg(word);
        vec![take, give]
    })
}

/// The scripts. A client also deletes the latch of each unlock, in a command
/// of its own: it is sent, and not counted.
fn lua(kind: Kind, scripts: &Redisson) -> Turn {
    turn(&["evalsha"], |name, number| {
        let request = format!("{number:032x}");
        let (take, give) = match kind {
            Kind::Read => (
                scripts.read_lock(name, OWNER, DEFAULT_LEASE),
                scripts.read_unlock(name, OWNER, &request),
            ),
            Kind::Write => (
                scripts.write_lock(name, OWNER, DEFAULT_LEASE),
                scripts.write_unlock(name, OWNER, &request),
            ),
        };
        let mut forget = redis::cmd("DEL");
        forget.arg(latch(name, &request));
        vec![take, give, forget]
    })
}

fn turn(counted: &'static [&'static str], pair: impl Fn(&str, usize) -> Vec<Cmd>) -> Turn {
    let mut turn = Turn { bytes: Vec::new(), commands: 0, counted };
    for number in 0..PAIRS {
        for command in pair(&format!("orders:{}", number % LOCKS), number) {
            turn.bytes.extend(command.get_packed_command());
            turn.commands += 1;
        }
    }
    turn
}

/// The us that a pair costs.
fn cost(con: &mut Connection, turn: &Turn) -> f64 {
    assert_ok(call!(con, "CONFIG", "RESETSTAT"));
    let replies = con
        .req_packed_commands(&turn.bytes, 0, turn.commands)
        .expect("send many commands and read their replies");
    // Every lock was free, every unlock frees it: other paths cost other times.
    let each = turn.commands / PAIRS;
    for pair in replies.chunks(each) {
        let taken = matches!(pair[0], Value::Okay | Value::Nil);
        assert!(taken && pair[1] == Value::Int(1), "an odd pair: {pair:?}");
    }
    let stats = text(call!(con, "INFO", "commandstats"));
    let us: u64 = turn.counted.iter().map(|command| time_in(&stats, command)).sum();
    us as f64 / PAIRS as f64
}

/// The us that the server has spent in a command.
fn time_in(stats: &str, command: &str) -> u64 {
    let start = format!("cmdstat_{command}:");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    let us = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("usec=")));
    us.and_then(|us| us.parse().ok()).unwrap_or_else(|| panic!("no {command} in {stats}"))
}

/// The median, with the least and the most.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({least:.2}..{most:.2})", values[values.len() / 2])
}
