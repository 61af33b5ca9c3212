//! Clients that all want one lock: how often it goes round, how evenly, and
//! what each cycle takes of the server and of the network.

use super::{info, on, settle, Bench};
use crate::contenders::Contender;
use crate::load::{Load, Protocol};
use crate::machine::cpu_time;
use crate::plot::{lines, Line};
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use std::time::Duration;
use support::{assert_ok, call, Server};

/// How many of a hundred requests want to read.
const MIXES: [(&str, u64); 3] =
    [("writers only", 0), ("half of them readers", 50), ("90 of 100 readers", 90)];

/// What a round gives.
struct Round {
    per_second: f64,
    /// By client.
    cycles: Vec<u64>,
    /// Of each cycle.
    requests: f64,
    commands: f64,
    bytes: f64,
    cpu: f64,
}

pub fn measure(bench: &mut Bench) {
    let server = bench.start(Server::builder());
    let mut contenders = bench.all(&server);
    let sizes: &[usize] = bench.size(&[64], &[2, 8, 64, 512]);
    for (label, reads) in MIXES {
        let mut rows = Vec::new();
        let mut curves: Vec<Line> =
            contenders.iter().map(|contender| Line::new(contender.name)).collect();
        for &clients in sizes {
            bench.progress(format_args!("{clients} clients, {label}"));
            // Fairness is told at 64 writers: those rounds are 10 s together.
            let fair = clients == 64 && reads == 0;
            let ms = if fair { bench.size(1_000, 3_340) } else { bench.size(400, 500) };
            let all = rounds(bench, &server, &mut contenders, clients, reads, ms);
            for (number, (contender, rounds)) in contenders.iter().zip(&all).enumerate() {
                rows.push(row(contender, clients, rounds));
                curves[number].add(clients as f64, rate(rounds).median());
            }
            if clients == 64 {
                figures(bench, label, &all, fair, ms);
            }
        }
        let mut section = Section::new(&format!("One lock for all, {label}")).table(
            [
                "",
                "clients",
                "cycles/s",
                "slowest / luckiest client",
                "requests",
                "commands",
                "bytes",
                "CPU, µs",
            ],
            rows,
        );
        if reads == 0 {
            section = section.say(TEXT);
        }
        if sizes.len() > 1 {
            let title = format!("Cycles a second on one lock, {label}");
            let plot = lines(&title, "clients", "cycles/s", &curves);
            section = section.plot(&format!("contended-{reads}"), plot);
        }
        bench.section(section);
    }
}

const TEXT: &str = "Each client takes the lock, releases it at once and takes it again. rwlock, \
    PostgreSQL and etcd wait in the server. Redisson's clients are processes, or threads of one \
    process; a process subscribes while it has waiters, and they ask again at each message (here \
    no message is missed; in Redisson one can be). The rest poll. SET NX and etcd have no readers. \
    *Slowest / luckiest* is the fewest / the most acquisitions of one client. Requests, commands \
    run by the server (also in scripts), bytes (both ways) and process CPU are per cycle.";

fn rounds(
    bench: &Bench,
    server: &Server,
    contenders: &mut [Contender],
    clients: usize,
    reads: u64,
    ms: u64,
) -> Vec<Vec<Round>> {
    let redis = on(server).pid;
    let count = bench.size(2, 3);
    // The round for nothing is a short one.
    alternate(count, contenders, |contender, round| {
        settle(contender.pid);
        let load = Load {
            clients,
            reads,
            alone: false,
            hold: Duration::ZERO,
            time: Duration::from_millis(if round == 0 { 50 } else { ms }),
            spins: bench.layout.spins(),
        };
        let (outcome, [before, after]) = load.run(contender, || {
            let commands = match contender.protocol {
                Protocol::Resp => info(server, "stats", "total_commands_processed"),
                _ => f64::NAN,
            };
            (cpu_time(contender.pid), commands)
        });
        if contender.pid == redis {
            // A lock that was held in the end would else lapse in another's turn.
            settle(redis);
            assert_ok(call!(server.connection(), "FLUSHALL"));
        }
        let total = outcome.total();
        Round {
            per_second: outcome.per_second(),
            requests: outcome.requests as f64 / total,
            commands: (after.1 - before.1) / total,
            bytes: outcome.bytes as f64 / total,
            cpu: (after.0 - before.0) / 1e3 / total,
            cycles: outcome.cycles,
        }
    })
}

fn rate(rounds: &[Round]) -> Rounds {
    rounds.iter().map(|round| round.per_second).collect()
}

/// The slowest client over the luckiest, all rounds together.
fn evenness(rounds: &[Round]) -> f64 {
    let mut sums = vec![0; rounds[0].cycles.len()];
    for round in rounds {
        for (sum, cycles) in sums.iter_mut().zip(&round.cycles) {
            *sum += cycles;
        }
    }
    let least = sums.iter().min().copied().unwrap_or_default();
    let most = sums.iter().max().copied().unwrap_or_default();
    least as f64 / most as f64
}

fn row(contender: &Contender, clients: usize, rounds: &[Round]) -> Vec<String> {
    let show = |figure: fn(&Round) -> f64| {
        let rounds: Rounds = rounds.iter().map(figure).collect();
        crate::stats::number(rounds.median())
    };
    vec![
        contender.name.into(),
        clients.to_string(),
        rate(rounds).show(),
        format!("{:.3}", evenness(rounds)),
        show(|round| round.requests),
        show(|round| round.commands),
        show(|round| round.bytes),
        show(|round| round.cpu),
    ]
}

fn figures(bench: &mut Bench, label: &str, all: &[Vec<Round>], fair: bool, ms: u64) {
    for (number, processes) in [(1, ""), (2, ", all in one process")] {
        let ratio = rate(&all[0]).over(&rate(&all[number]));
        let what = format!(
            "contended cycles/s at 64 clients, module / Redisson's protocol{processes}, {label}"
        );
        bench.figure(Figure::new(&what, ratio).at_least(5.0, 15.0));
    }
    if fair {
        let seconds = all[0].len() as f64 * ms as f64 / 1e3;
        let what =
            format!("slowest / luckiest client at 64 clients over {seconds:.0} s, acquisitions");
        let evenness = [evenness(&all[0])].into_iter().collect();
        bench.figure(Figure::new(&what, evenness).at_least(0.9, 0.98));
    }
}
