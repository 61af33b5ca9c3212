//! Clients that lock several of a few accounts: how often they do, how evenly, and
//! what each cycle takes of the server. And what an UNLOCK costs while clients wait
//! for pairs of locks.

use super::{fill, info, info_us, on, settle, Bench};
use crate::contenders::transfers::{postgres, Mover};
use crate::contenders::{owner, peers};
use crate::load::{Moved, Net, Pipe, Protocol, Transfers};
use crate::machine::cpu_time;
use crate::report::{Figure, Section};
use crate::stats::{alternate, number, Rounds};
use std::collections::BTreeSet;
use std::time::Duration;
use support::redisson::Redisson;
use support::wire::{packed, packed_line};
use support::{assert_ok, call, wait_until, Random, Server};

/// How many accounts a client locks, of how many, and the round trip of the network in ms.
const CASES: [(usize, usize, u64); 3] = [(2, 100, 0), (2, 100, 1), (4, 20, 0)];

const CLIENTS: usize = 64;

pub fn measure(bench: &mut Bench) {
    transfers(bench);
    pairs_in_queues(bench);
}

/// What a round gives.
struct Round {
    moved: Moved,
    /// Of each cycle, in us.
    cpu: f64,
}

impl Round {
    fn cycles(&self) -> f64 {
        self.moved.cycles.iter().sum::<u64>() as f64
    }

    fn per_second(&self) -> f64 {
        self.cycles() / self.moved.elapsed.as_secs_f64()
    }

    fn requests(&self) -> f64 {
        self.moved.requests as f64 / self.cycles()
    }
}

fn transfers(bench: &mut Bench) {
    let server = bench.start(Server::builder());
    let mut rows = Vec::new();
    for case in CASES {
        let (locks, accounts, round_trip) = case;
        bench.progress(format_args!(
            "{CLIENTS} clients, {locks} of {accounts} accounts, {round_trip} ms of network"
        ));
        let mut movers = movers(bench, &server, locks);
        let all = rounds(bench, &server, &mut movers, case);
        for (mover, rounds) in movers.iter().zip(&all) {
            rows.push(row(mover.name, case, rounds));
        }
        figures(bench, case, &all);
    }
    bench.section(Section::new("Several locks for each client").say(TEXT).table(
        [
            "",
            "accounts",
            "network, ms",
            "cycles/s",
            "slowest / luckiest client",
            "requests",
            "CPU, µs",
        ],
        rows,
    ));
}

const TEXT: &str = "64 clients. Each takes the write locks of several accounts, drawn at random, \
    and gives all back at once. MLOCK takes all locks with one request, and MUNLOCK gives them \
    back. *One by one*: the client sorts the accounts and asks for the next lock when it has the \
    one before, so that there is no deadlock; it sends all unlocks in one write. rwlock and \
    PostgreSQL wait in the server. Each of Redisson's clients subscribes to the channel of the \
    lock that it waits for and asks again at each message, as its MultiLock would with sorted \
    locks and without timeouts. The Lua that polls takes all locks or none, in one script. \
    SET and DEL of a key of its own for each client lock nothing: they show what two requests \
    cost. *Network*: how long a request and its reply are on their way. With 0 ms the clients wait \
    for the server's CPU, with 1 ms for the network and for each other. *Slowest / luckiest* is the \
    fewest / the most cycles of one client. Requests and CPU (process time) are per cycle.";

fn movers(bench: &Bench, server: &Server, locks: usize) -> Vec<Mover> {
    let mut movers = on(server).movers(&mut server.connection(), locks);
    let peers = bench.peers.iter().map(peers::Peer::contender);
    let postgres = peers
        .filter(|peer| peer.protocol == Protocol::Postgres)
        .map(|contender| postgres(contender, locks));
    movers.extend(postgres);
    movers
}

fn rounds(
    bench: &Bench,
    server: &Server,
    movers: &mut [Mover],
    (locks, accounts, round_trip): (usize, usize, u64),
) -> Vec<Vec<Round>> {
    let (count, ms) = bench.size((2, 400), (3, 1_000));
    alternate(count, movers, |mover, round| {
        let pid = mover.contender.pid;
        settle(pid);
        // The round for nothing is a short one.
        let time = Duration::from_millis(if round == 0 { 50 } else { ms });
        let spins = bench.layout.spins();
        let round_trip = Duration::from_millis(round_trip);
        let load = Transfers { clients: CLIENTS, locks, accounts, time, round_trip, spins };
        let (moved, cpu) = load.run(mover, || cpu_time(pid));
        if pid == server.pid() {
            settle(pid);
            assert_ok(call!(server.connection(), "FLUSHALL"));
        }
        let mut round = Round { moved, cpu: 0.0 };
        round.cpu = (cpu[1] - cpu[0]) / 1e3 / round.cycles();
        round
    })
}

fn rate(rounds: &[Round]) -> Rounds {
    rounds.iter().map(Round::per_second).collect()
}

/// The slowest client over the luckiest, all rounds together.
fn evenness(rounds: &[Round]) -> f64 {
    let of_client = |client: usize| rounds.iter().map(|round| round.moved.cycles[client]).sum();
    let sums: Vec<u64> = (0..CLIENTS).map(of_client).collect();
    let least = sums.iter().min().copied().unwrap_or_default();
    let most = sums.iter().max().copied().unwrap_or_default();
    least as f64 / most as f64
}

fn row(
    name: &str,
    (locks, accounts, round_trip): (usize, usize, u64),
    rounds: &[Round],
) -> Vec<String> {
    let median = |figure: fn(&Round) -> f64| {
        let rounds: Rounds = rounds.iter().map(figure).collect();
        number(rounds.median())
    };
    vec![
        name.into(),
        format!("{locks} of {accounts}"),
        round_trip.to_string(),
        rate(rounds).show(),
        format!("{:.3}", evenness(rounds)),
        median(Round::requests),
        median(|round| round.cpu),
    ]
}

/// For two locks.
fn figures(
    bench: &mut Bench,
    (locks, accounts, round_trip): (usize, usize, u64),
    all: &[Vec<Round>],
) {
    if locks != 2 {
        return;
    }
    let network = match round_trip {
        0 => String::new(),
        ms => format!(" over a network of {ms} ms"),
    };
    let others = [("sorted WLOCKs", 1, 1.5, 2.0), ("Redisson's protocol", 2, 5.0, 20.0)];
    for (name, other, least, aim) in others {
        let ratio = rate(&all[0]).over(&rate(&all[other]));
        let what = format!(
            "cycles/s of {CLIENTS} clients that lock {locks} of {accounts}{network}, MLOCK / {name}"
        );
        bench.figure(Figure::new(&what, ratio).at_least(least, aim));
    }
}

/// How many locks there are in the second part.
const LOCKS: usize = 100;

const LEASE: u32 = 3_600_000;

/// The owner of all locks.
const HOLDER: &str = "holder";

fn pairs_in_queues(bench: &mut Bench) {
    let (rounds, turns) = bench.size((5, 2_000), (9, 5_000));
    bench.progress(format_args!("{rounds} rounds of {turns} UNLOCKs, with waiters for pairs"));
    let mut crowds = [10, 1_000].map(|waiters| Crowd::new(bench, waiters, turns));
    let all = alternate(rounds, &mut crowds, |crowd, _| crowd.round());
    let of = |crowd: usize, figure: fn(&Costs) -> f64| -> Rounds {
        all[crowd].iter().map(figure).collect()
    };
    let show = |crowd, figure| of(crowd, figure).show();
    let rows: Vec<Vec<String>> = (0..crowds.len())
        .map(|crowd| {
            vec![
                number(crowds[crowd].waiters as f64),
                show(crowd, |costs| costs.unlock),
                show(crowd, |costs| costs.refused),
                show(crowd, |costs| costs.script),
                show(crowd, |costs| costs.process),
            ]
        })
        .collect();
    let grows = |figure: fn(&Costs) -> f64| of(1, figure).over(&of(0, figure));
    let what = "UNLOCK that frees a lock for no waiter, 1,000 waiters for pairs of locks / 10";
    bench.figure(Figure::new(what, grows(|costs| costs.unlock)).under(2.0, 1.5));
    let what = format!("{what}, by process time of UNLOCK, refused WLOCK and script");
    bench.figure(Figure::new(&what, grows(|costs| costs.process)));
    bench.section(
        Section::new("Growth: waiters for pairs of locks")
            .say(format!(
                "One owner holds {LOCKS} locks. Each waiter waits for two of them (MLOCK). In \
                 each turn the owner frees one lock, and its queue is served: no waiter gets it, \
                 because the other lock of each is still held. Then a WLOCK without BLOCK is \
                 refused, because the waiters come first. Redisson's script for a write lock, \
                 which knows no queue, takes the lock again for its owner. All turns are for the \
                 locks of the first 10 waiters. The commands' times are by `INFO commandstats`, \
                 in µs; *process* is the CPU time of the server's process for the whole turn."
            ))
            .table(["waiters", "UNLOCK", "refused WLOCK", "script", "process"], rows),
    );
}

/// What the commands of a turn cost, in us.
struct Costs {
    unlock: f64,
    refused: f64,
    script: f64,
    process: f64,
}

/// Clients that wait for pairs of locks, and a server of their own.
struct Crowd {
    server: Server,
    /// The connections of those who wait.
    _net: Net,
    waiters: usize,
    pipe: Pipe,
    request: Vec<u8>,
    turns: usize,
}

impl Crowd {
    fn new(bench: &mut Bench, waiters: usize, turns: usize) -> Self {
        let server = bench.start(Server::builder());
        let mut con = server.connection();
        let take = |lock| packed_line(&format!("RWLOCK.WLOCK {} {HOLDER} {LEASE}", name(lock)));
        fill(&mut con, (0..LOCKS).map(take));
        let pairs = pairs(waiters);
        let mut net = Net::new(false);
        for (number, [one, other]) in pairs.iter().enumerate() {
            let conn = net.connect(server.port(), Protocol::Resp);
            let (owner, one, other) = (owner(number), name(*one), name(*other));
            let take = format!("RWLOCK.MLOCK {owner} 30000 WRITE 2 {one} {other} BLOCK 0");
            net.send(conn, &packed_line(&take));
        }
        wait_until("all wait", || info(&server, "clients", "blocked_clients") == waiters as f64);
        let freed: BTreeSet<usize> = pairs[..10].iter().flatten().copied().collect();
        let scripts = Redisson::load(&mut con).expect("load the scripts");
        let request = freed.iter().cycle().take(turns).flat_map(|lock| turn(*lock, &scripts));
        let request = request.collect();
        let pipe = Pipe::connect(server.port());
        Self { server, _net: net, waiters, pipe, request, turns }
    }

    fn round(&mut self) -> Costs {
        assert_ok(call!(self.server.connection(), "CONFIG", "RESETSTAT"));
        let before = cpu_time(self.server.pid());
        self.pipe.run(&self.request, b":1\r\n:0\r\n$-1\r\n", self.turns);
        let process = cpu_time(self.server.pid()) - before;
        assert_eq!(info(&self.server, "clients", "blocked_clients"), self.waiters as f64);
        let us = |command| info_us(&self.server, &[command]) / self.turns as f64;
        Costs {
            unlock: us("rwlock.unlock"),
            refused: us("rwlock.wlock"),
            script: us("evalsha"),
            process: process / 1e3 / self.turns as f64,
        }
    }
}

fn name(lock: usize) -> String {
    format!("w:{lock}")
}

/// Two different locks for each waiter. The first waiters' are always the same.
fn pairs(waiters: usize) -> Vec<[usize; 2]> {
    let mut random = Random::new(1);
    (0..waiters)
        .map(|_| {
            let one = random.below_len(LOCKS);
            [one, (one + 1 + random.below_len(LOCKS - 1)) % LOCKS]
        })
        .collect()
}

/// Frees a lock, asks for it in vain, and takes it again.
fn turn(lock: usize, scripts: &Redisson) -> Vec<u8> {
    let (lock, lease) = (name(lock), LEASE.to_string());
    // Redisson's field for a write hold is what the module has for this owner.
    let again = scripts.write_lock(&lock, HOLDER, LEASE).get_packed_command();
    [
        packed(["RWLOCK.UNLOCK", &lock, HOLDER]),
        packed(["RWLOCK.WLOCK", &lock, HOLDER, &lease]),
        again,
    ]
    .concat()
}
