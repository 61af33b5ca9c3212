//! The benchmark: this module beside what its users have, in one run.
//!
//! `make bench` runs it, `make bench-quick` in a smaller size. It writes
//! `target/bench/report.md` and plots; `docs/benchmarks.md` is one such report
//! and says how it is to be read. With `--docs` it writes that page instead.
//!
//! One thread makes the load, with connections of its own. Contenders take
//! turns, round after round, on the same server and the same cores.

#![expect(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod contenders;
mod load;
mod machine;
mod measures;
mod plot;
mod report;
mod stats;

use measures::Bench;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    // Anything that is no option names the measures that are wanted.
    let wanted: Vec<&String> = arguments.iter().filter(|name| !name.starts_with('-')).collect();
    let chosen: Vec<_> = measures::ALL
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .collect();
    assert!(
        !chosen.is_empty(),
        "no such measure: there are {:?}",
        measures::ALL.map(|(name, _)| name)
    );

    let mut bench = Bench::new(given("--quick"));
    for (number, (name, measure)) in (1..).zip(&chosen) {
        bench.announce(number, chosen.len(), name);
        measure(&mut bench);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = if given("--docs") {
        root.join("docs/benchmarks.md")
    } else {
        root.join("target/bench/report.md")
    };
    bench.finish(&page);
}
