//! What it costs the server to hand a lock over: the CPU of its process, over a
//! PING baseline with as many clients and as many round trips.
//!
//! Clients stand in a ring and take turns. In each turn one of them sends two
//! commands and gets two replies, in the same rhythm whatever they are:
//!
//! |           | first                            | second                            |
//! |-----------|----------------------------------|-----------------------------------|
//! | baseline  | PING                             | PING                              |
//! | plain     | UNLOCK of a lock of its own      | WLOCK of it                       |
//! | hand-over | UNLOCK of the lock that all want | WLOCK with BLOCK, answered before |
//! |           |                                  | its next turn                     |
//!
//! So a turn of the hand-over has all of a waiter's life in it: it gets into the
//! queue, is granted by the UNLOCK of another client, and is told. In the end
//! everybody gives the lock back and nobody queues again: that is the UNLOCK, the
//! grant and what the waiter is told, alone.
//!
//! Rounds of all of them alternate, so that whatever else the machine does falls
//! on all. Run it by `make bench`.

#![expect(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[expect(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

use harness::{call, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// How often each has its turn.
const ROUNDS: usize = 9;

/// How many turns of clients a round has.
const TURNS: usize = 20_000;

/// One holds the lock and two want it, of whom one may not have queued again
/// yet when it is handed over: one or two wait.
const FEW: usize = 3;

/// As many, with 10,000 who wait as well.
const MANY: usize = FEW + 10_000;

fn main() {
    let mut rings = [Ring::new(FEW), Ring::new(MANY)];
    let version = rings[0].server.version();
    let name = if version.valkey { "Valkey" } else { "Redis" };
    println!("{name} {}.{}: server CPU in us, {TURNS} turns a round", version.major, version.minor);
    println!("median of {ROUNDS} rounds, (least..most)\n");
    // Warm up: a round that does not count.
    for ring in &mut rings {
        ring.round();
    }
    let mut costs = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (ring, costs) in rings.iter_mut().zip(&mut costs) {
            costs.push(ring.round());
        }
    }
    print(&costs[0], &costs[1]);
}

/// What a turn cost in a round, in us.
struct Costs {
    ping: f64,
    plain: f64,
    handover: f64,
    /// Without queueing again.
    last: f64,
}

impl Costs {
    fn plain(&self) -> f64 {
        self.plain - self.ping
    }

    fn handover(&self) -> f64 {
        self.handover - self.ping
    }

    /// Over one PING: half a turn, though two clients get a reply.
    fn last(&self) -> f64 {
        self.last - self.ping / 2.0
    }
}

fn print(few: &[Costs], many: &[Costs]) {
    let row = |name: &str, columns: [String; 2]| {
        println!("{name:<44}{:>22}{:>22}", columns[0], columns[1]);
    };
    let costs = |name: &str, of: fn(&Costs) -> f64| {
        row(name, [few, many].map(|costs| spread(costs.iter().map(of).collect())));
    };
    row("clients that wait", ["1 to 2".into(), format!("{} to {}", MANY - 2, MANY - 1)]);
    costs("two PINGs", |costs| costs.ping);
    costs("over two PINGs: UNLOCK and WLOCK, free lock", Costs::plain);
    costs("over two PINGs: hand-over with queueing", Costs::handover);
    // Three turns are too few to measure.
    let last = spread(many.iter().map(Costs::last).collect());
    row("over one PING: hand-over alone, 10,000 to 0", ["".into(), last]);

    println!();
    let ratio = |name: &str, each: &dyn Fn((&Costs, &Costs)) -> f64| {
        println!("{name:<66}{:>22}", spread(few.iter().zip(many).map(each).collect()));
    };
    ratio("hand-over alone / plain pair", &|(_, many)| many.last() / many.plain());
    ratio("hand-over with queueing / plain pair", &|(few, _)| few.handover() / few.plain());
    ratio("hand-over with queueing, 10,000 more waiters / none more", &|(few, many)| {
        many.handover() / few.handover()
    });
}

/// The median, with the least and the most.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({least:.2}..{most:.2})", values[values.len() / 2])
}

/// Clients that take turns, and a server of their own.
struct Ring {
    server: Server,
    clients: Vec<TcpStream>,
    turn: usize,
}

/// A command for each client, and its reply.
struct Sent {
    commands: Vec<Vec<u8>>,
    reply: &'static str,
}

impl Ring {
    fn new(count: usize) -> Self {
        let server = Server::builder().config("maxclients", count + 32).start();
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connect");
            stream.set_nodelay(true).expect("switch off Nagle's algorithm");
            stream
        };
        let clients = (0..count).map(connect).collect();
        Self { server, clients, turn: 0 }
    }

    fn round(&mut self) -> Costs {
        let lease = 3_600_000;
        let ping = self.every(|_| "PING".into(), "+PONG\r\n");
        let (ping, _) = self.all(&ping, &ping);

        let take = self.every(|n| format!("RWLOCK.WLOCK own:{n} owner:{n} {lease}"), "+OK\r\n");
        let give = self.every(|n| format!("RWLOCK.UNLOCK own:{n} owner:{n}"), ":1\r\n");
        let (plain, _) = self.all(&give, &take);

        let take = |n| format!("RWLOCK.WLOCK wanted owner:{n} {lease} BLOCK 0");
        let take = self.every(take, "+OK\r\n");
        let give = self.every(|n| format!("RWLOCK.UNLOCK wanted owner:{n}"), ":1\r\n");
        let (handover, last) = self.all(&give, &take);
        Costs { ping, plain, handover, last }
    }

    fn every(&self, line: impl Fn(usize) -> String, reply: &'static str) -> Sent {
        let pack = |number| {
            let mut command = redis::Cmd::new();
            for word in line(number).split(' ') {
                command.arg(word);
            }
            command.get_packed_command()
        };
        Sent { commands: (0..self.clients.len()).map(pack).collect(), reply }
    }

    /// What a turn costs with these two commands, and what one costs in which
    /// the second is not sent any more.
    fn all(&mut self, first: &Sent, second: &Sent) -> (f64, f64) {
        let mut control = self.server.connection();
        for step in 0..self.clients.len() {
            self.send(self.turn + step, second);
            // The server looks at many sockets at once, in any order, and these
            // are to come in the order of the ring.
            call!(control, "PING").expect("ping");
        }
        let cost = self.turns(TURNS, first, second, true);
        (cost, self.turns(self.clients.len(), first, second, false))
    }

    /// So many turns; what one cost, in us.
    fn turns(&mut self, count: usize, first: &Sent, second: &Sent, again: bool) -> f64 {
        let before = self.server_cpu();
        for _ in 0..count {
            // Of its last turn.
            self.receive(self.turn, second);
            self.send(self.turn, first);
            self.receive(self.turn, first);
            if again {
                self.send(self.turn, second);
            }
            self.turn += 1;
        }
        (self.server_cpu() - before) / 1e3 / count as f64
    }

    fn send(&mut self, turn: usize, sent: &Sent) {
        let number = turn % self.clients.len();
        self.clients[number].write_all(&sent.commands[number]).expect("send a command");
    }

    fn receive(&mut self, turn: usize, sent: &Sent) {
        let number = turn % self.clients.len();
        let mut reply = [0; 8];
        let reply = &mut reply[..sent.reply.len()];
        self.clients[number].read_exact(reply).expect("read a reply");
        assert_eq!(reply, sent.reply.as_bytes(), "{:?}", String::from_utf8_lossy(reply));
    }

    /// How long the server's threads have run, in ns.
    fn server_cpu(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.server.pid()));
        let times = tasks.expect("list the server's threads").map(|task| {
            let path = task.expect("one of them").path().join("schedstat");
            let text = fs::read_to_string(path).expect("read the time that it has run");
            let time = text.split(' ').next().and_then(|time| time.parse::<f64>().ok());
            time.unwrap_or_else(|| panic!("no time in {text:?}"))
        });
        times.sum()
    }
}
