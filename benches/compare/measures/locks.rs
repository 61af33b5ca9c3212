//! A pair on a server that has many locks already.

use super::pairs::{Cost, Costs, Turn};
use super::{fill, on, settle, Bench};
use crate::contenders::{owner, Kind, Processes};
use crate::plot::{lines, Line};
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use support::wire::packed_line;
use support::Server;

struct Subject {
    locks: usize,
    server: Server,
    turns: Vec<Turn>,
}

pub fn measure(bench: &mut Bench) {
    let sizes: &[usize] = bench.size(&[1_000, 1_000_000], &[1_000, 10_000, 100_000, 1_000_000]);
    let pairs: usize = bench.size(5_000, 20_000);
    let mut names = Vec::new();
    let mut subjects = Vec::new();
    for &locks in sizes {
        bench.progress(format_args!("making {locks} locks"));
        let server = bench.start(Server::builder());
        let mut con = server.connection();
        let take = |n| packed_line(&format!("RWLOCK.WLOCK orders:{n} {} 3600000", owner(n)));
        fill(&mut con, (0..locks).map(take));
        let contenders = [
            on(&server).module(false),
            on(&server).redisson(&mut con, Processes::Many),
            on(&server).set_del(),
        ];
        names = contenders.iter().map(|contender| contender.name).collect();
        // Names all over the server's tables.
        let lock = |n: usize| format!("pair:{}", n.wrapping_mul(2_654_435_761) % 1_000_003);
        let turns =
            contenders.iter().map(|contender| Turn::new(contender, Kind::Write, pairs, lock));
        subjects.push(Subject { locks, turns: turns.collect(), server });
    }
    for subject in &subjects {
        settle(subject.server.pid());
    }
    let rounds = bench.size(5, 9);
    bench.progress(format_args!("{rounds} rounds over servers of {sizes:?} locks"));
    let all = alternate(rounds, &mut subjects, |subject, _| {
        let Subject { turns, server, .. } = subject;
        turns.iter_mut().map(|turn| turn.cost(server)).collect::<Vec<Cost>>()
    });
    // By size, then by contender.
    let all: Vec<Vec<Costs>> = all.into_iter().map(by_contender).collect();
    let mut curves: Vec<Line> = names.iter().map(|name| Line::new(name)).collect();
    let mut rows = Vec::new();
    for (subject, costs) in subjects.iter().zip(&all) {
        let mut row = vec![crate::stats::number(subject.locks as f64)];
        for (costs, curve) in costs.iter().zip(&mut curves) {
            row.extend([costs.commands.show(), costs.process.show()]);
            curve.add(subject.locks as f64, costs.commands.median());
        }
        rows.push(row);
    }
    let growth = |contender: usize, of: fn(&Costs) -> &Rounds| {
        of(&all[all.len() - 1][contender]).over(of(&all[0][contender]))
    };
    let what = format!(
        "write lock + unlock with 1,000,000 locks / with 1,000 (SET NX PX + DEL: {})",
        crate::stats::number(growth(2, |costs| &costs.commands).median())
    );
    let aim = growth(2, |costs| &costs.commands).median();
    bench.figure(Figure::new(&what, growth(0, |costs| &costs.commands)).under(2.0, aim));
    let what = format!(
        "the same, by process time (SET NX PX + DEL: {})",
        crate::stats::number(growth(2, |costs| &costs.process).median())
    );
    bench.figure(Figure::new(&what, growth(0, |costs| &costs.process)));
    bench.section(
        Section::new("Growth: locks")
            .say(
                "Write lock + unlock of one more lock, beside so many held write locks. SET NX PX \
                 + DEL grows too: larger tables do not fit the processor's caches.",
            )
            .table(
                [
                    "locks",
                    "rwlock, commands, µs",
                    "process, µs",
                    "Redisson's Lua, commands, µs",
                    "process, µs",
                    "SET NX PX + DEL, commands, µs",
                    "process, µs",
                ],
                rows,
            )
            .plot("locks", lines("A write pair, by number of locks", "locks", "µs", &curves)),
    );
}

fn by_contender(rounds: Vec<Vec<Cost>>) -> Vec<Costs> {
    let mut all: Vec<Vec<Cost>> = Vec::new();
    for round in rounds {
        for (number, cost) in round.into_iter().enumerate() {
            if all.len() == number {
                all.push(Vec::new());
            }
            all[number].push(cost);
        }
    }
    all.into_iter().map(Costs::from).collect()
}
