//! A pair of one reader more, on locks that have many already.

use super::pairs::{Costs, Turn};
use super::{fill, on, settle, Bench};
use crate::contenders::{owner, Kind, Processes};
use crate::plot::{lines, Line};
use crate::report::{Figure, Section};
use crate::stats::alternate;
use support::wire::packed_line;
use support::Server;

pub fn measure(bench: &mut Bench) {
    let sizes: &[usize] = bench.size(&[10, 1_000, 100_000], &[1, 10, 100, 1_000, 10_000, 100_000]);
    let server = bench.start(Server::builder());
    let mut con = server.connection();
    bench.progress("making readers");
    for size in sizes {
        let take = |n| packed_line(&format!("RWLOCK.RLOCK crowd:{size} {} 3600000", owner(n)));
        fill(&mut con, (0..*size).map(take));
    }
    settle(server.pid());
    let rounds = bench.size(2, 5);
    let pairs: usize = bench.size(2_000, 10_000);
    let contenders = [on(&server).module(false), on(&server).redisson(&mut con, Processes::Many)];
    let mut turns = Vec::new();
    for (number, contender) in contenders.iter().enumerate() {
        for size in sizes {
            // The scripts look at every reader: fewer pairs take long enough.
            let pairs = if number == 0 { pairs } else { (100_000 / size).clamp(1, pairs) };
            turns.push(Turn::new(contender, Kind::Read, pairs, |_| format!("crowd:{size}")));
        }
    }
    bench.progress(format_args!("{rounds} rounds over locks of {sizes:?} readers"));
    let all: Vec<Costs> = alternate(rounds, &mut turns, |turn, _| turn.cost(&server))
        .into_iter()
        .map(Costs::from)
        .collect();
    let (module, scripts) = all.split_at(sizes.len());
    let mut curves = contenders.each_ref().map(|contender| Line::new(contender.name));
    let mut rows = Vec::new();
    for ((size, module), scripts) in sizes.iter().zip(module).zip(scripts) {
        rows.push(vec![
            crate::stats::number(*size as f64),
            module.commands.show(),
            module.process.show(),
            scripts.commands.show(),
            scripts.process.show(),
        ]);
        curves[0].add(*size as f64, module.commands.median());
        curves[1].add(*size as f64, scripts.commands.median());
    }
    let at = |wanted: usize| sizes.iter().position(|size| *size == wanted).unwrap_or_default();
    let ratio = module[at(100_000)].commands.over(&module[at(10)].commands);
    let what = "read lock + unlock with 100,000 readers on the lock / with 10";
    bench.figure(Figure::new(what, ratio).under(1.5, 1.2));
    bench.section(
        Section::new("Growth: readers of one lock")
            .say("One more reader locks and unlocks. Redisson's unlock reads all holds.")
            .table(
                [
                    "readers",
                    "rwlock, commands, µs",
                    "process, µs",
                    "Redisson's Lua, commands, µs",
                    "process, µs",
                ],
                rows,
            )
            .plot("readers", lines("A read pair, by number of readers", "readers", "µs", &curves)),
    );
}
