//! What it costs the other commands that the module is loaded.

use super::{fill, Bench};
use crate::load::Pipe;
use crate::machine::cpu_time;
use crate::plot::{bars, Bar};
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use support::wire::packed_line;
use support::Server;

/// Command, its answer, and must its mark be reached?
const COMMANDS: [(&str, &str, bool); 5] = [
    ("GET key:{}", "$5\r\nvalue\r\n", true),
    ("SET key:{} value", "+OK\r\n", true),
    ("HSET hash:{} field value", ":0\r\n", true),
    ("DEL gone:{}", ":1\r\n", true),
    ("EXPIRE key:{} 3600", ":1\r\n", false),
];

struct Subject {
    server: Server,
    pipe: Pipe,
}

/// Rates, and the process time of a command in ns.
struct Round([(f64, f64); COMMANDS.len()]);

pub fn measure(bench: &mut Bench) {
    let pairs = bench.size(2, 4);
    let rounds = bench.size(7, 15);
    let count: usize = bench.size(10_000, 20_000);
    let requests = COMMANDS.map(|(command, ..)| {
        let commands = (0..count).map(|n| packed_line(&command.replace("{}", &n.to_string())));
        commands.flatten().collect::<Vec<u8>>()
    });
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        bench.progress(format_args!("{rounds} rounds on the servers of pair {}/{pairs}", pair + 1));
        // Each process has a layout of its own, which makes some difference:
        // so more than one of each, started in turn.
        let mut builders = [Server::builder(), Server::builder().without_module()];
        if pair % 2 == 1 {
            builders.reverse();
        }
        let mut subjects = builders.map(|builder| {
            let server = bench.start(builder);
            let keys = (0..count).map(|n| packed_line(&format!("SET key:{n} value")));
            let hashes = (0..count).map(|n| packed_line(&format!("HSET hash:{n} field value")));
            fill(&mut server.connection(), keys.chain(hashes));
            Subject { pipe: Pipe::connect(server.port()), server }
        });
        if pair % 2 == 1 {
            subjects.reverse();
        }
        let all = alternate(rounds, &mut subjects, |subject, _| round(subject, &requests, count));
        let [first, second]: [Vec<Round>; 2] =
            all.try_into().unwrap_or_else(|_| panic!("two servers have two results"));
        with.extend(first);
        without.extend(second);
    }
    let column = |rounds: &[Round], command: usize| -> [Rounds; 2] {
        [
            rounds.iter().map(|round| round.0[command].0).collect(),
            rounds.iter().map(|round| round.0[command].1).collect(),
        ]
    };
    let (mut rows, mut plotted) = (Vec::new(), Vec::new());
    for (number, (command, _, counts)) in COMMANDS.into_iter().enumerate() {
        let name = command.split(' ').next().unwrap_or_default();
        let [rate, cpu] = column(&with, number);
        let [plain_rate, plain_cpu] = column(&without, number);
        let ratio = rate.over(&plain_rate);
        rows.push(vec![
            name.into(),
            crate::stats::number(rate.median()),
            crate::stats::number(plain_rate.median()),
            ratio.show(),
            cpu.over(&plain_cpu).show(),
        ]);
        plotted.push(Bar::new(name.into(), &ratio));
        let figure =
            Figure::new(&format!("throughput of {name}, with the module / without"), ratio);
        bench.figure(if counts { figure.at_least(0.97, 0.99) } else { figure });
    }
    bench.section(
        Section::new("What other commands pay")
            .say(format!(
                "Pipelined, {count} commands a round, on {pairs} pairs of servers, with and \
                 without the module in turn. No lock is used: from the first lock on, key events \
                 cost each DEL and EXPIRE some 1,000 instructions (a quarter of a DEL)."
            ))
            .table(
                ["", "with, a second", "without, a second", "ratio", "process time, ratio"],
                rows,
            )
            .plot("tax", bars("Throughput with the module / without", "", &plotted)),
    );
}

fn round(subject: &mut Subject, requests: &[Vec<u8>; COMMANDS.len()], count: usize) -> Round {
    let keys = (0..count).map(|n| packed_line(&format!("SET gone:{n} value")));
    fill(&mut subject.server.connection(), keys);
    let pid = subject.server.pid();
    Round(std::array::from_fn(|number| {
        let before = cpu_time(pid);
        let reply = COMMANDS[number].1.as_bytes();
        let elapsed = subject.pipe.run(&requests[number], reply, count);
        let each = (cpu_time(pid) - before) / count as f64;
        (count as f64 / elapsed.as_secs_f64(), each)
    }))
}
