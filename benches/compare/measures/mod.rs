//! What is measured, in order.

mod contended;
mod floor;
mod handoff;
mod idle;
mod locks;
mod log;
mod memory;
mod pairs;
mod readers;
mod shards;
mod stalls;
mod tax;
mod transfers;
mod waiters;

use crate::contenders::{peers, Contender, OnServer, Processes};
use crate::machine::{cpu_time, raise_file_limit, Layout};
use crate::report::{Figure, Report, Section};
use redis::{Connection, Value};
use std::path::Path;
use std::time::{Duration, Instant};
use support::wire::Batch;
use support::{Builder, Server};

pub type Measure = fn(&mut Bench);

pub const ALL: [(&str, Measure); 14] = [
    ("pairs", pairs::measure),
    ("floor", floor::measure),
    ("contended", contended::measure),
    ("transfers", transfers::measure),
    ("handoff", handoff::measure),
    ("log", log::measure),
    ("memory", memory::measure),
    ("tax", tax::measure),
    ("readers", readers::measure),
    ("waiters", waiters::measure),
    ("locks", locks::measure),
    ("shards", shards::measure),
    ("stalls", stalls::measure),
    ("idle", idle::measure),
];

/// A run of the benchmark.
pub struct Bench {
    quick: bool,
    layout: Layout,
    report: Report,
    started: Instant,
    peers: Vec<peers::Peer>,
}

impl Bench {
    pub fn new(quick: bool) -> Self {
        raise_file_limit();
        let layout = Layout::choose();
        let started = Instant::now();
        let mut report = Report::new(quick, layout.describe());
        let mut running = Vec::new();
        for (name, peer) in [("PostgreSQL", peers::postgres()), ("etcd", peers::etcd())] {
            match peer {
                Some(peer) => {
                    layout.place_server(peer.pid());
                    running.push(peer);
                }
                None => {
                    eprintln!(
                        "\n*** {name} IS NOT INSTALLED and not compared: make bench-peers ***\n"
                    );
                    report.absent.push(name);
                }
            }
        }
        Self { quick, layout, report, started, peers: running }
    }

    pub fn announce(&self, number: usize, of: usize, name: &str) {
        let elapsed = self.started.elapsed().as_secs();
        eprintln!("[{number}/{of}] {name}, after {elapsed} s");
    }

    /// Says what is measured now.
    fn progress(&self, what: impl std::fmt::Display) {
        eprintln!("      {what}");
    }

    pub fn finish(mut self, page: &Path) {
        self.report.took = self.started.elapsed();
        self.report.write(page);
        eprintln!("{}", self.report.marks());
        eprintln!("{} after {} s", page.display(), self.report.took.as_secs());
    }

    /// One of two sizes.
    fn size<T>(&self, quick: T, full: T) -> T {
        if self.quick {
            quick
        } else {
            full
        }
    }

    /// Starts a server on the servers' core.
    fn start(&mut self, builder: Builder) -> Server {
        let server = builder.config("maxclients", 15_000).start();
        self.layout.place_server(server.pid());
        if self.report.server.is_empty() {
            let version = server.version();
            let name = if version.valkey { "Valkey" } else { "Redis" };
            self.report.server = format!("{name} {}.{}", version.major, version.minor);
        }
        server
    }

    fn figure(&mut self, figure: Figure) {
        self.report.figures.push(figure);
    }

    fn section(&mut self, section: Section) {
        eprint!("{}", section.text());
        self.report.sections.push(section);
    }

    /// All that can be waited for, this module first.
    fn all(&self, server: &Server) -> Vec<Contender> {
        let on = on(server);
        let mut con = server.connection();
        let mut all = vec![
            on.module(true),
            on.redisson(&mut con, Processes::Many),
            on.redisson(&mut con, Processes::One),
            on.polling(&mut con, 10),
            on.polling(&mut con, 50),
            on.mutex(&mut con),
        ];
        all.extend(self.peers.iter().map(peers::Peer::contender));
        all
    }
}

fn on(server: &Server) -> OnServer {
    OnServer { port: server.port(), pid: server.pid() }
}

/// Waits until a server has done what it had to do: the end of the clients of
/// the run before is no part of the next.
fn settle(pid: u32) {
    const LOOK: Duration = Duration::from_millis(10);
    let limit = Instant::now() + Duration::from_secs(10);
    let mut before = cpu_time(pid);
    while Instant::now() < limit {
        std::thread::sleep(LOOK);
        let now = cpu_time(pid);
        // In ns: less than a twentieth of the time.
        if now - before < 500_000.0 {
            return;
        }
        before = now;
    }
}

/// Sends commands in large batches; none of the answers may be an error.
fn fill(con: &mut Connection, commands: impl Iterator<Item = Vec<u8>>) {
    const BATCH: usize = 5_000;
    let mut batch = Batch::default();
    let mut commands = commands.peekable();
    while let Some(command) = commands.next() {
        batch.add_packed(&command);
        if batch.len() == BATCH || commands.peek().is_none() {
            let wrong = batch.exchange(con).find(|reply| matches!(reply, Value::ServerError(_)));
            assert!(wrong.is_none(), "{wrong:?}");
        }
    }
}

/// A number that INFO tells.
fn info(server: &Server, section: &str, field: &str) -> f64 {
    let info = server.info(section);
    let number = info.get(field).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {field} in INFO {section}"))
}

/// The us that the server has spent in these commands.
fn info_us(server: &Server, commands: &[&str]) -> f64 {
    let stats = server.info("commandstats");
    let of = |command: &&str| {
        let line = stats.get(&format!("cmdstat_{command}"));
        let us = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("usec=")));
        us.and_then(|us| us.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("no {command} in {stats:?}"))
    };
    commands.iter().map(of).sum()
}
