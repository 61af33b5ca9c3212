//! How long it takes from a release to the next owner's answer.

use super::{settle, Bench};
use crate::contenders::Contender;
use crate::load::{Load, Net, Protocol};
use crate::plot::{bars, Bar};
use crate::report::{Figure, Section};
use crate::stats::{alternate, number, Rounds};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use support::Server;

enum Subject {
    /// One PING, with as many clients connected.
    Ping,
    Handoff(Contender),
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Self::Ping => "one PING",
            Self::Handoff(contender) => contender.name,
        }
    }
}

pub fn measure(bench: &mut Bench) {
    let server = bench.start(Server::builder());
    let mut subjects = vec![Subject::Ping];
    subjects.extend(bench.all(&server).into_iter().map(Subject::Handoff));
    let sizes: &[usize] = bench.size(&[64], &[2, 8, 64, 512]);
    let rounds = bench.size(3, 5);
    let time = Duration::from_millis(bench.size(500, 700));
    // The round for nothing is a short one.
    let time = |round| if round == 0 { time / 5 } else { time };
    let mut rows = Vec::new();
    let mut plotted = Vec::new();
    for &clients in sizes {
        bench.progress(format_args!("{clients} clients, {rounds} rounds"));
        let hold = hold(clients);
        let all = alternate(rounds, &mut subjects, |subject, round| match subject {
            Subject::Ping => ping(bench, server.port(), clients, hold, time(round)),
            Subject::Handoff(contender) => {
                settle(contender.pid);
                let load = Load {
                    clients,
                    reads: 0,
                    alone: false,
                    hold,
                    time: time(round),
                    spins: bench.layout.spins(),
                };
                let (outcome, _) = load.run(contender, || ());
                outcome.handoffs
            }
        });
        let medians: Vec<Rounds> = all.iter().map(|rounds| medians(rounds)).collect();
        for ((subject, rounds), medians) in subjects.iter().zip(&all).zip(&medians) {
            let mut sum = Histogram::<u64>::new(3).expect("make a histogram");
            for round in rounds {
                sum.add(round).expect("add a histogram");
            }
            // So many are needed before a quantile means something.
            let tail = |quantile: f64, least: u64| match sum.len() {
                count if count < least => "–".to_owned(),
                _ => number(us(&sum, quantile)),
            };
            rows.push(vec![
                subject.name().into(),
                clients.to_string(),
                medians.show(),
                tail(0.99, 100),
                tail(0.999, 1_000),
                number(sum.len() as f64),
            ]);
            if clients == 64 {
                plotted.push(Bar::new(format!("{} p50", subject.name()), medians));
                if sum.len() >= 100 {
                    let p99 = [us(&sum, 0.99)].into_iter().collect();
                    plotted.push(Bar::new(format!("{} p99", subject.name()), &p99));
                }
            }
        }
        if clients == 64 {
            let what = "hand-off p50 at 64 clients: module / one PING with as many connected";
            bench.figure(Figure::new(what, medians[1].over(&medians[0])).under(2.5, 1.5));
        }
    }
    bench.section(
        Section::new("Hand-off")
            .say(
                "Time from sending the release to the next owner's reply, while all other clients \
                 wait. Holds last 300 µs, or 15 µs per client if that is more, so that woken \
                 clients are idle again. p50 is the median of the rounds' medians; p99 and p99.9 \
                 cover all rounds, if there are enough hand-offs.",
            )
            .table(["", "clients", "p50, µs", "p99, µs", "p99.9, µs", "hand-offs"], rows)
            .plot("handoff", bars("Hand-off, 64 clients (logarithmic)", "µs", &plotted).log()),
    );
}

fn hold(clients: usize) -> Duration {
    Duration::from_micros(15 * clients as u64).max(Duration::from_micros(300))
}

/// Of the rounds in which there was any.
fn medians(rounds: &[Histogram<u64>]) -> Rounds {
    rounds.iter().filter(|round| !round.is_empty()).map(|round| us(round, 0.5)).collect()
}

fn us(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e3
}

/// One client after the other sends a PING, after a pause as long as a hold.
fn ping(
    bench: &Bench,
    port: u16,
    clients: usize,
    pause: Duration,
    time: Duration,
) -> Histogram<u64> {
    let mut net = Net::new(bench.layout.spins());
    for _ in 0..clients {
        net.connect(port, Protocol::Resp);
    }
    let mut times = Histogram::new(3).expect("make a histogram");
    let end = Instant::now() + time;
    let mut ready = Vec::new();
    for turn in 0.. {
        let begin = Instant::now();
        if begin >= end {
            break;
        }
        net.wait(begin + pause, &mut ready);
        let sent = Instant::now();
        net.ask(turn % clients, b"*1\r\n$4\r\nPING\r\n");
        let ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.record(ns).expect("a histogram that grows");
    }
    times
}
