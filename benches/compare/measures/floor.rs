//! How much more a lock and its unlock cost than the calls of the server that they
//! cannot do without.

use super::pairs::{Cost, Costs, Turn, LOCKS};
use super::{on, Bench};
use crate::contenders::KINDS;
use crate::report::{Figure, Section};
use crate::stats::alternate;
use std::env;
use std::path::PathBuf;
use support::Server;

pub fn measure(bench: &mut Bench) {
    let floor = library();
    let (processes, rounds) = bench.size((1, 5), (5, 3));
    let pairs = bench.size(5_000, 20_000);
    let mut all: [[Vec<Cost>; 2]; 2] = Default::default();
    for process in 1..=processes {
        bench.progress(format_args!("{rounds} rounds on server {process}/{processes}"));
        // Each process has a layout of its own, which makes some difference.
        let server = bench.start(Server::builder().config("loadmodule", floor.display()));
        let contenders = [on(&server).module(false), on(&server).floor()];
        for ((_, kind), all) in KINDS.into_iter().zip(&mut all) {
            let lock = |number| format!("orders:{}", number % LOCKS);
            let mut turns =
                contenders.each_ref().map(|contender| Turn::new(contender, kind, pairs, lock));
            let costs = alternate(rounds, &mut turns, |turn, _| turn.cost(&server));
            all.iter_mut().zip(costs).for_each(|(all, costs)| all.extend(costs));
        }
    }
    let mut rows = Vec::new();
    for ((label, _), costs) in KINDS.into_iter().zip(all) {
        let [module, floor] = costs.map(Costs::from);
        for (name, costs) in [("rwlock", &module), ("floor", &floor)] {
            rows.push(vec![
                format!("{name} {label}"),
                costs.commands.show(),
                costs.process.show(),
                costs.per_second.show(),
            ]);
        }
        let what = format!("server CPU, {label} lock + unlock, module / floor");
        bench.figure(Figure::new(&what, module.commands.over(&floor.commands)).under(1.35, 1.25));
        let what = format!("{what}, by process time");
        bench.figure(Figure::new(&what, module.process.over(&floor.process)));
    }
    bench.section(
        Section::new("A lock and its unlock, and the floor")
            .say(
                "The floor is a second module on the same server (`benches/floor`). It makes only \
                 the server calls that a lock and its unlock need: open, read, write and expire \
                 the keys, announce and count the change, reply. It has no queue, lapses, \
                 statistics, sessions or other holders. Pairs are pipelined. Instruction counts \
                 repeat better than times: `make instructions`.",
            )
            .table(["", "commands, µs a pair", "process, µs a pair", "pairs/s"], rows),
    );
}

/// The floor's library, which lies beside this program's folder.
fn library() -> PathBuf {
    let program = env::current_exe().expect("know where this program is");
    let library = program.with_file_name("").join("../examples/libfloor.so");
    library.canonicalize().expect("build it first: cargo build --release --example floor")
}
