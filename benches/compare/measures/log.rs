//! What the log costs a hand-off: off, as it is by default, and with an entry for each wait.

use super::{on, settle, Bench};
use crate::load::Load;
use crate::machine::cpu_time;
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use std::time::Duration;
use support::{assert_ok, call, Server};

const CLIENTS: usize = 64;

/// The settings `log-slower-than`, in ms.
const CASES: [(&str, i64); 3] = [
    ("off (-1)", -1),
    ("the default (1,000), no wait is so long", 1_000),
    ("an entry for each wait (0)", 0),
];

pub fn measure(bench: &mut Bench) {
    let server = bench.start(Server::builder());
    let (count, ms) = bench.size((3, 400), (9, 500));
    bench.progress(format_args!("{count} rounds of {CLIENTS} clients that want one lock"));
    let contender = on(&server).module(true);
    let mut cases = CASES;
    let all = alternate(count, &mut cases, |(_, slower_than), round| {
        let setting = "rwlock.log-slower-than";
        assert_ok(call!(server.connection(), "CONFIG", "SET", setting, *slower_than));
        settle(server.pid());
        let load = Load {
            clients: CLIENTS,
            reads: 0,
            alone: false,
            hold: Duration::ZERO,
            time: Duration::from_millis(if round == 0 { 50 } else { ms }),
            spins: bench.layout.spins(),
        };
        let (outcome, [before, after]) = load.run(&contender, || cpu_time(server.pid()));
        settle(server.pid());
        assert_ok(call!(server.connection(), "FLUSHALL"));
        (after - before) / 1e3 / outcome.total()
    });
    let cpu = |case: usize| -> Rounds { all[case].iter().copied().collect() };
    let rows = CASES
        .iter()
        .enumerate()
        .map(|(case, (name, _))| vec![(*name).to_owned(), cpu(case).show()])
        .collect();
    bench.figure(
        Figure::new("CPU of a hand-off, log as by default / off", cpu(1).over(&cpu(0)))
            .under(1.05, 1.02),
    );
    bench.figure(
        Figure::new("CPU of a hand-off, log of each wait / off", cpu(2).over(&cpu(0)))
            .under(1.2, 1.1),
    );
    bench.section(
        Section::new("The log")
            .say(format!(
                "{CLIENTS} clients want one lock, and nearly all wait. When a wait begins, the \
                 module notes what stands in its way, at most 8 owners. CPU is the process time of \
                 the server for each cycle of lock and unlock, in µs."
            ))
            .table(["RWLOCK.LOG", "CPU, µs"], rows),
    );
}
