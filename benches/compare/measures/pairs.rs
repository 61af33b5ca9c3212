//! A lock and its unlock, without contention: what it costs the server, and how
//! many there are in a second.

use super::{info_us, on, settle, Bench};
use crate::contenders::{Contender, Kind, Processes, KINDS};
use crate::load::{Load, Net, Pipe};
use crate::machine::cpu_time;
use crate::plot::{bars, Bar};
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use std::time::Duration;
use support::{assert_ok, call, wait_synced, Server};

/// How many locks the pairs go round.
pub const LOCKS: usize = 100;

/// Many pairs of a contender, ready to be sent.
pub struct Turn {
    request: Vec<u8>,
    /// What each pair answers.
    reply: Vec<u8>,
    pairs: usize,
    counted: &'static [&'static str],
    pid: u32,
    pipe: Pipe,
}

/// What a pair cost, in us, and how many there were in a second.
pub struct Cost {
    /// By the server's own count of the time that it spends in each command.
    pub commands: f64,
    /// By the time that its process ran.
    pub process: f64,
    pub per_second: f64,
}

impl Turn {
    /// Pairs that go round these locks.
    pub fn new(
        contender: &Contender,
        kind: Kind,
        pairs: usize,
        lock: impl Fn(usize) -> String,
    ) -> Self {
        // An owner of its own, which no lock that is held knows.
        let talk = |number| contender.talk(&lock(number), 900_042);
        let mut net = Net::new(false);
        let conn = net.connect(contender.port, contender.protocol);
        let mut reply = Vec::new();
        let first = talk(0);
        for command in
            [&first.take[kind as usize], &first.give[kind as usize]].into_iter().chain(&first.after)
        {
            reply.extend(net.ask(conn, command));
        }
        assert!(contender.held(&reply), "{}: {}", contender.name, String::from_utf8_lossy(&reply));
        let mut request = Vec::new();
        for number in 0..pairs {
            let mut talk = talk(number);
            request.append(&mut talk.take[kind as usize]);
            request.append(&mut talk.give[kind as usize]);
            request.extend(talk.after.unwrap_or_default());
        }
        let counted = contender.counted[kind as usize];
        let pipe = Pipe::connect(contender.port);
        Self { request, reply, pairs, counted, pid: contender.pid, pipe }
    }

    pub fn cost(&mut self, server: &Server) -> Cost {
        assert_ok(call!(server.connection(), "CONFIG", "RESETSTAT"));
        let before = cpu_time(self.pid);
        let elapsed = self.pipe.run(&self.request, &self.reply, self.pairs);
        let process = cpu_time(self.pid) - before;
        let pairs = self.pairs as f64;
        Cost {
            commands: info_us(server, self.counted) / pairs,
            process: process / 1e3 / pairs,
            per_second: pairs / elapsed.as_secs_f64(),
        }
    }
}

/// The rounds of a contender.
pub struct Costs {
    pub commands: Rounds,
    pub process: Rounds,
    pub per_second: Rounds,
}

impl From<Vec<Cost>> for Costs {
    fn from(costs: Vec<Cost>) -> Self {
        let all = |figure: fn(&Cost) -> f64| costs.iter().map(figure).collect();
        Self {
            commands: all(|cost| cost.commands),
            process: all(|cost| cost.process),
            per_second: all(|cost| cost.per_second),
        }
    }
}

pub fn measure(bench: &mut Bench) {
    pipelined(bench);
    replicated(bench);
    let server = bench.start(Server::builder());
    one_by_one(bench, &server);
}

fn pipelined(bench: &mut Bench) {
    let (processes, rounds) = bench.size((1, 5), (5, 3));
    let pairs = bench.size(5_000, 20_000);
    let mut all: [Vec<(String, Vec<Cost>)>; 2] = Default::default();
    for process in 1..=processes {
        // Each process has a layout of its own, which makes some difference.
        let server = bench.start(Server::builder());
        let (on, mut con) = (on(&server), server.connection());
        let contenders = [
            on.module(false),
            on.redisson(&mut con, Processes::Many),
            on.polling(&mut con, 10),
            on.mutex(&mut con),
            on.set_del(),
            on.ping(),
        ];
        for ((label, kind), all) in KINDS.into_iter().zip(&mut all) {
            bench.progress(format_args!(
                "{label} pairs, pipelined, {rounds} rounds on server {process}/{processes}"
            ));
            let takers: Vec<&Contender> = contenders
                .iter()
                .filter(|contender| contender.shares || kind == Kind::Write)
                .collect();
            all.resize_with(takers.len(), Default::default);
            let lock = |n| format!("orders:{}", n % LOCKS);
            let mut turns: Vec<Turn> =
                takers.iter().map(|contender| Turn::new(contender, kind, pairs, lock)).collect();
            let costs = alternate(rounds, &mut turns, |turn, _| turn.cost(&server));
            for ((all, contender), costs) in all.iter_mut().zip(takers).zip(costs) {
                all.0 = named(contender, label);
                all.1.extend(costs);
            }
        }
    }
    let mut rows = Vec::new();
    let (mut by_commands, mut by_process) = (Vec::new(), Vec::new());
    for ((label, kind), all) in KINDS.into_iter().zip(all) {
        let (names, costs): (Vec<String>, Vec<Costs>) =
            all.into_iter().map(|(name, costs)| (name, Costs::from(costs))).unzip();
        for (name, costs) in names.iter().zip(&costs) {
            rows.push(vec![
                name.clone(),
                costs.commands.show(),
                costs.process.show(),
                costs.per_second.show(),
            ]);
            by_commands.push(Bar::new(name.clone(), &costs.commands));
            by_process.push(Bar::new(name.clone(), &costs.process));
        }
        let (least, aim) = if kind == Kind::Write { (5.0, 8.0) } else { (3.5, 4.5) };
        let what = format!("server CPU, {label} lock + unlock, Lua / module");
        bench.figure(
            Figure::new(&what, costs[1].commands.over(&costs[0].commands)).at_least(least, aim),
        );
        let what = format!("{what}, by process time");
        bench.figure(Figure::new(&what, costs[1].process.over(&costs[0].process)));
        if kind == Kind::Write {
            let ratio = costs[0].per_second.over(&costs[4].per_second);
            let what = "pipelined write pairs/s, module / (SET NX PX + DEL)";
            bench.figure(Figure::new(what, ratio).at_least(0.4, 0.6));
        }
    }
    bench.section(
        Section::new("A lock and its unlock, pipelined")
            .say(format!(
                "One connection sends {pairs} pairs a round over {LOCKS} locks, far ahead of the \
                 replies; on {processes} servers in turn, because memory layouts differ. \
                 *Commands* is the server's own time for lock and unlock (`INFO commandstats`), \
                 without reading requests and writing replies. *Process* is all CPU time of the \
                 server's process; for Redisson it includes the DEL after each unlock. The Lua \
                 that polls has one lease for all readers."
            ))
            .table(["", "commands, µs a pair", "process, µs a pair", "pairs/s"], rows)
            .plot(
                "pairs-cpu",
                bars("Server CPU of lock + unlock, by commandstats", "µs", &by_commands),
            )
            .plot(
                "pairs-process",
                bars("Server CPU of lock + unlock, by process time", "µs", &by_process),
            ),
    );
}

/// With an AOF and a replica: what is propagated counts too.
fn replicated(bench: &mut Bench) {
    let builder = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "everysec")
        .config("auto-aof-rewrite-percentage", "0");
    let server = bench.start(builder);
    let replica = Server::builder().replica_of(&server).start();
    bench.layout.place_aside(replica.pid());
    wait_synced(&server, &replica);
    let rounds = bench.size(5, 11);
    let pairs = bench.size(2_000, 10_000);
    let mut rows = Vec::new();
    let contenders = [
        on(&server).module(false),
        on(&server).redisson(&mut server.connection(), Processes::Many),
    ];
    for (label, kind) in KINDS {
        bench.progress(format_args!("{label} pairs, AOF and a replica, {rounds} rounds"));
        let lock = |number| format!("orders:{}", number % LOCKS);
        let mut turns =
            contenders.each_ref().map(|contender| Turn::new(contender, kind, pairs, lock));
        let costs: Vec<Costs> = alternate(rounds, &mut turns, |turn, _| {
            let cost = turn.cost(&server);
            // What the replica has not yet got would be sent in another's turn.
            wait_synced(&server, &replica);
            cost
        })
        .into_iter()
        .map(Costs::from)
        .collect();
        for (contender, costs) in contenders.iter().zip(&costs) {
            let name = format!("{} {label}", contender.name);
            rows.push(vec![name, costs.commands.show(), costs.process.show()]);
        }
        let what = format!("{label} lock + unlock, AOF everysec and a replica, Lua / module");
        bench.figure(
            Figure::new(&what, costs[1].commands.over(&costs[0].commands)).at_least(3.0, 4.0),
        );
        let what = format!("{what}, by process time");
        bench.figure(
            Figure::new(&what, costs[1].process.over(&costs[0].process)).at_least(3.0, 4.0),
        );
    }
    bench.section(
        Section::new("The same with an AOF and a replica")
            .say(
                "`appendonly yes`, `appendfsync everysec`, one replica. The server propagates \
                 mostly after it has counted the command, so prefer the process time here.",
            )
            .table(["", "commands, µs a pair", "process, µs a pair"], rows),
    );
}

/// Each request waits for the answer to the one before.
fn one_by_one(bench: &mut Bench, server: &Server) {
    let mut contenders = bench.all(server);
    // These differ only in how they wait.
    contenders.remove(4);
    contenders.remove(2);
    contenders.extend([on(server).set_del(), on(server).ping()]);
    let rounds = bench.size(2, 5);
    let time = Duration::from_millis(bench.size(150, 400));
    let mut rows = Vec::new();
    for (label, kind) in KINDS {
        let mut takers: Vec<&Contender> =
            contenders.iter().filter(|contender| contender.shares || kind == Kind::Write).collect();
        let columns = [1, 64].map(|clients| {
            bench.progress(format_args!("{label} pairs, {clients} clients, one by one"));
            let all = alternate(rounds, &mut takers, |contender, round| {
                settle(contender.pid);
                let load = Load {
                    clients,
                    reads: if kind == Kind::Read { 100 } else { 0 },
                    alone: true,
                    hold: Duration::ZERO,
                    // The round for nothing is a short one.
                    time: if round == 0 { time / 5 } else { time },
                    spins: bench.layout.spins(),
                };
                let (outcome, cpu) = load.run(contender, || cpu_time(contender.pid));
                (outcome.per_second(), (cpu[1] - cpu[0]) / 1e3 / outcome.total())
            });
            all.into_iter()
                .map(|rounds| {
                    let (rates, costs): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
                    (Rounds::from_iter(rates), Rounds::from_iter(costs))
                })
                .collect::<Vec<_>>()
        });
        for (number, contender) in takers.iter().enumerate() {
            let [one, many] = columns.each_ref().map(|column| &column[number]);
            rows.push(vec![
                named(contender, label),
                one.0.show(),
                one.1.show(),
                many.0.show(),
                many.1.show(),
            ]);
        }
    }
    bench.section(
        Section::new("A lock and its unlock, one by one")
            .say(
                "Each client has its own lock and sends a request after the reply to the last one. \
                 CPU is the server's process time (PostgreSQL: all processes), in µs a pair. Only \
                 etcd writes locks to disk before it replies.",
            )
            .table(["", "1 client, pairs/s", "CPU", "64 clients, pairs/s", "CPU"], rows),
    );
}

/// With the kind of hold, where there are two.
fn named(contender: &Contender, label: &str) -> String {
    match contender.shares {
        true => format!("{} {label}", contender.name),
        false => contender.name.into(),
    }
}
