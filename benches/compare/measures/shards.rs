//! What a shard of a cluster costs, in clusters of several sizes.

use super::{info, info_us, on, Bench};
use crate::contenders::Kind;
use crate::load::{Net, Pipe, Protocol};
use crate::machine::cpu_time;
use crate::report::{Figure, Section};
use crate::stats::{alternate, number, Rounds};
use std::thread;
use std::time::{Duration, Instant};
use support::{assert_ok, call, slot, Cluster, Server};

/// The sizes of the clusters, in primaries.
const SIZES: [usize; 4] = [1, 3, 8, 16];

/// How many locks of each node the pairs go round.
const LOCKS: usize = 20;

/// The load of each node: so many pairs, sent at once, or hand-offs, in each tick.
const PAIRS: usize = 10;
const HANDOFFS: usize = 4;
const TICK: Duration = Duration::from_millis(20);

/// What is measured in each round, in this order.
const GLOBAL: usize = 0;
const PAIR: usize = 1;
const HANDOFF: usize = 2;

/// A cluster, and clients of each of its nodes.
struct Subject {
    cluster: Cluster,
    shards: Vec<Shard>,
    net: Net,
}

struct Shard {
    pid: u32,
    pipe: Pipe,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// A lock for each hand-off of a tick.
    handoffs: Vec<Handoff>,
}

/// Two clients of the net, who hand a lock to each other.
struct Handoff {
    clients: [usize; 2],
    take: [Vec<u8>; 2],
    give: [Vec<u8>; 2],
    /// Which of them holds it.
    holder: usize,
}

/// What a round cost the nodes of a cluster, in µs for each pair or hand-off.
struct Cost {
    /// The time of the processes of all nodes.
    process: f64,
    /// By the servers' own count of the time that they spend in the commands. 0: not counted.
    commands: f64,
}

pub fn measure(bench: &mut Bench) {
    let rounds = bench.size(3, 7);
    let ticks = bench.size(50, 100);
    let mut subjects: Vec<Subject> = SIZES
        .into_iter()
        .map(|size| {
            bench.progress(format_args!("a cluster of {size}"));
            Subject::start(bench, size)
        })
        .collect();
    let memory: Vec<[f64; 3]> = subjects.iter().map(Subject::memory).collect();

    bench.progress("idle nodes");
    let idle = alternate(rounds, &mut subjects, |subject, _| {
        let before = subject.cpu();
        let started = Instant::now();
        thread::sleep(TICK * ticks as u32 / 2);
        let cpu = (subject.cpu() - before) / 1e3;
        cpu / started.elapsed().as_secs_f64() / subject.shards.len() as f64
    });
    bench.progress(format_args!("pairs and hand-offs, {rounds} rounds"));
    let costs = alternate(rounds, &mut subjects, |subject, _| {
        let mut pairs = |publish| {
            subject.set("rwlock.cluster-publish", publish);
            subject.pairs(ticks)
        };
        [pairs("global"), pairs("sharded"), subject.handoffs(ticks)]
    });

    let of = |size: usize, figure: &dyn Fn(&[Cost; 3]) -> f64| {
        costs[size].iter().map(figure).collect::<Rounds>()
    };
    let process = |what: usize, size: usize| of(size, &|costs| costs[what].process);
    let commands = |size: usize| of(size, &|costs| costs[PAIR].commands);
    let last = SIZES.len() - 1;
    let what = format!("server CPU, write lock + unlock, {} primaries / one", SIZES[last]);
    bench.figure(Figure::new(&what, commands(last).over(&commands(0))).under(1.1, 1.05));
    let what = format!("{what}, by process time");
    bench.figure(Figure::new(&what, process(PAIR, last).over(&process(PAIR, 0))).under(1.1, 1.05));

    let rows = SIZES.iter().enumerate().map(|(at, size)| {
        let [used, resident, links] = memory[at];
        let idle: Rounds = idle[at].iter().copied().collect();
        let mut row = vec![size.to_string(), commands(at).show()];
        row.extend([PAIR, HANDOFF, GLOBAL].map(|what| process(what, at).show()));
        row.push(idle.show());
        row.extend([used, resident, links].map(|bytes| number(bytes / 1024.0)));
        row
    });
    let rows = rows.collect();
    let a_second = |number: usize| number as f64 / TICK.as_secs_f64();
    bench.section(
        Section::new("Shards of a cluster")
            .say(format!(
                "All nodes run on this machine. Each gets the same load, whatever the size of the \
                 cluster: {} write pairs a second, {PAIRS} at once over {LOCKS} locks, or {} \
                 hand-offs. *Process* is the CPU time of the processes of all nodes, with what an \
                 idle node uses. *Global*: the same pairs with `cluster-publish global`, which \
                 tells every node of each release. Memory is that of an idle node, and the part \
                 of it for links to the other nodes.",
                number(a_second(PAIRS)),
                number(a_second(HANDOFFS)),
            ))
            .table(
                [
                    "primaries",
                    "pair, commands, µs",
                    "pair, process, µs",
                    "hand-off, process, µs",
                    "pair, global, process, µs",
                    "an idle node, µs a second",
                    "used memory, KB",
                    "resident, KB",
                    "links, KB",
                ],
                rows,
            ),
    );
}

impl Subject {
    fn start(bench: &mut Bench, size: usize) -> Subject {
        let cluster = Cluster::start(size, 0);
        let mut net = Net::new(bench.layout.spins());
        let mut shards = Vec::new();
        for (at, node) in cluster.nodes().iter().enumerate() {
            bench.layout.place_server(node.pid());
            shards.push(Shard::new(node, &mut net, &tags(at, size)));
        }
        Subject { cluster, shards, net }
    }

    fn set(&self, name: &str, value: &str) {
        for node in self.cluster.nodes() {
            assert_ok(call!(node.connection(), "CONFIG", "SET", name, value));
        }
    }

    /// How long the processes of all nodes have run, in ns.
    fn cpu(&self) -> f64 {
        self.shards.iter().map(|shard| cpu_time(shard.pid)).sum()
    }

    /// The means over the nodes, in bytes: used memory, resident memory, buffers of links.
    fn memory(&self) -> [f64; 3] {
        let mean = |field| {
            let nodes = self.cluster.nodes().iter();
            nodes.map(|node| info(node, "memory", field)).sum::<f64>() / self.shards.len() as f64
        };
        ["used_memory", "used_memory_rss", "mem_cluster_links"].map(mean)
    }

    fn pairs(&mut self, ticks: usize) -> Cost {
        for node in self.cluster.nodes() {
            assert_ok(call!(node.connection(), "CONFIG", "RESETSTAT"));
        }
        let before = self.cpu();
        paced(ticks, || {
            for Shard { pipe, request, reply, .. } in &mut self.shards {
                pipe.run(request, reply, PAIRS);
            }
        });
        let pairs = (ticks * PAIRS * self.shards.len()) as f64;
        let process = (self.cpu() - before) / 1e3 / pairs;
        let of = |node| info_us(node, &["rwlock.wlock", "rwlock.unlock"]);
        let commands = self.cluster.nodes().iter().map(of).sum::<f64>() / pairs;
        Cost { process, commands }
    }

    fn handoffs(&mut self, ticks: usize) -> Cost {
        let Subject { shards, net, .. } = self;
        let cpu = |shards: &[Shard]| shards.iter().map(|shard| cpu_time(shard.pid)).sum::<f64>();
        for Handoff { clients, take, holder, .. } in shards.iter().flat_map(|s| &s.handoffs) {
            assert_eq!(net.ask(clients[*holder], &take[*holder]), b"+OK\r\n");
        }
        let before = cpu(shards);
        paced(ticks, || {
            let all = || shards.iter().flat_map(|shard| &shard.handoffs);
            for Handoff { clients, take, holder, .. } in all() {
                net.send(clients[1 - holder], &take[1 - holder]);
            }
            // Until they wait. A release before that would be no hand-off.
            thread::sleep(TICK / 5);
            for Handoff { clients, give, holder, .. } in all() {
                let reply = net.ask(clients[*holder], &give[*holder]);
                assert_eq!(reply, b":1\r\n", "the lock is free of this hold");
            }
            for Handoff { clients, holder, .. } in all() {
                let reply = net.await_reply(clients[1 - holder]);
                assert_eq!(reply, b"+OK\r\n", "the other one has it");
            }
            for handoff in shards.iter_mut().flat_map(|shard| &mut shard.handoffs) {
                handoff.holder = 1 - handoff.holder;
            }
        });
        let process = cpu(shards) - before;
        // A lease would end before the next round.
        for Handoff { clients, give, holder, .. } in shards.iter().flat_map(|s| &s.handoffs) {
            assert_eq!(net.ask(clients[*holder], &give[*holder]), b":1\r\n");
        }
        let handoffs = (ticks * HANDOFFS * shards.len()) as f64;
        Cost { process: process / 1e3 / handoffs, commands: 0.0 }
    }
}

impl Shard {
    fn new(node: &Server, net: &mut Net, tags: &[String]) -> Shard {
        let module = on(node).module(false);
        let mut request = Vec::new();
        for number in 0..PAIRS {
            let talk = module.talk(&format!("{{{}}}orders", tags[number % tags.len()]), 900_042);
            request.extend(&talk.take[Kind::Write as usize]);
            request.extend(&talk.give[Kind::Write as usize]);
        }
        let handoffs = tags[..HANDOFFS].iter().map(|tag| Handoff::new(node, net, tag)).collect();
        let pipe = Pipe::connect(node.port());
        Shard { pid: node.pid(), pipe, request, reply: b"+OK\r\n:1\r\n".to_vec(), handoffs }
    }
}

impl Handoff {
    fn new(node: &Server, net: &mut Net, tag: &str) -> Handoff {
        let clients = [0, 1].map(|_| net.connect(node.port(), Protocol::Resp));
        let waits = on(node).module(true);
        let [one, other] =
            [900_042, 900_043].map(|owner| waits.talk(&format!("{{{tag}}}passed on"), owner));
        let write = Kind::Write as usize;
        let take = [one.take[write].clone(), other.take[write].clone()];
        let give = [one.give[write].clone(), other.give[write].clone()];
        Handoff { clients, take, give, holder: 0 }
    }
}

/// Hash tags of node so-and-so in a cluster of this size, whose nodes share the slots evenly.
fn tags(node: usize, size: usize) -> Vec<String> {
    let slots = node * 16_384 / size..(node + 1) * 16_384 / size;
    let all = (0..).map(|number| format!("t{number}"));
    all.filter(|tag| slots.contains(&slot(tag.as_bytes()).into())).take(LOCKS).collect()
}

/// Does it once in each tick. One that comes late is not made up for.
fn paced(ticks: usize, mut once: impl FnMut()) {
    for _ in 0..ticks {
        let next = Instant::now() + TICK;
        once();
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
