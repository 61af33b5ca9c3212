//! What it costs the server to hand a lock over, by how many wait for it: the
//! CPU of its process, over a PING baseline with as many clients.
//!
//! Commands come one at a time, and each while the server is busy with a batch of
//! PINGs of somebody else: what it takes to wake a server, or a client, is much
//! more than all that is compared here, and depends on what else there is to do.
//! So each is measured on its own, with its replies, and nothing else.
//!
//! | step      | command                              | who is answered          |
//! |-----------|--------------------------------------|--------------------------|
//! | ping      | PING                                 | the client               |
//! | unheard   | PUBLISH to nobody                    | the client               |
//! | heard     | PUBLISH                              | the client, and another  |
//! | lock      | WLOCK of a lock of its own           | the client               |
//! | unlock    | UNLOCK of it                         | the client               |
//! | queue     | WLOCK with BLOCK of the lock         | nobody                   |
//! | hand over | UNLOCK of the lock                   | the client, and the next |
//!
//! Each has its baseline in a PING that answers as many; what it costs to answer
//! another client is what PUBLISH costs more when it is heard. A hand-off, all of
//! a waiter's life, is the last two steps over two PINGs, as lock and unlock are.
//!
//! Beside it stands what the server itself does for a client that waits: BLPOP,
//! served by LPUSH, over LPUSH and LPOP of a list that nobody else wants.
//!
//! Those who wait stand in a ring: who has handed the lock over gets in line
//! again. As many others (but not too many for one process) take turns with what
//! is compared, for a client that was not heard of for long costs more.

use super::Bench;
use crate::machine::CpuClock;
use crate::plot::{lines, Line};
use crate::report::{Figure, Section};
use crate::stats::{alternate, number, Rounds};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::wire::packed_line;
use support::Server;

const LEASE: usize = 3_600_000;

/// The most clients of a kind that do not wait.
const MOST: usize = 4_000;

/// How many PINGs keep the server busy.
const BATCH: usize = 100;

/// A server whose time did not go on for so long sleeps.
const ASLEEP: Duration = Duration::from_micros(40);

pub fn measure(bench: &mut Bench) {
    let sizes: &[usize] = bench.size(&[1, 10, 10_000], &[1, 10, 100, 1_000, 10_000]);
    let (rounds, turns) = bench.size((3, 1_000), (9, 1_500));
    bench.progress(format_args!("{rounds} rounds of {turns} turns, {sizes:?} waiters"));
    let mut rings: Vec<Ring> = sizes.iter().map(|size| Ring::new(bench, *size)).collect();
    let all = alternate(rounds, &mut rings, |ring, _| ring.round(turns));
    let mut curves = [Line::new("rwlock"), Line::new("BLPOP, LPUSH")];
    let mut rows = Vec::new();
    for (size, costs) in sizes.iter().zip(&all) {
        let show = |trade, figure: fn(&Costs) -> f64| rounds_of(costs, trade, figure).show();
        rows.push(vec![
            number(*size as f64),
            show(0, Costs::plain),
            show(0, Costs::queue),
            show(0, Costs::hand_over),
            show(0, Costs::hand_off),
            show(1, Costs::plain),
            show(1, Costs::hand_over),
            show(1, Costs::hand_off),
        ]);
        for (trade, curve) in curves.iter_mut().enumerate() {
            curve.add(*size as f64, rounds_of(costs, trade, Costs::hand_off).median());
        }
    }
    let of = |wanted: usize, trade, figure: fn(&Costs) -> f64| {
        let index = sizes.iter().position(|size| *size == wanted).unwrap_or_default();
        rounds_of(&all[index], trade, figure)
    };
    let dear = |trade, figure| of(1, trade, figure).over(&of(1, trade, Costs::plain));
    let what = format!(
        "UNLOCK with one waiter / plain WLOCK + UNLOCK, process CPU above PING (LPUSH to BLPOP / \
         LPUSH + LPOP: {})",
        number(dear(1, Costs::hand_over).median())
    );
    bench.figure(Figure::new(&what, dear(0, Costs::hand_over)).under(1.5, 1.2));
    let what = format!(
        "the same, including the WLOCK that waits (the BLPOP that waits: {})",
        number(dear(1, Costs::hand_off).median())
    );
    bench.figure(Figure::new(&what, dear(0, Costs::hand_off)));
    let grows = |from, figure| of(10_000, 0, figure).over(&of(from, 0, figure));
    let what = "UNLOCK with 10,000 waiters / with one";
    bench.figure(Figure::new(what, grows(1, Costs::hand_over)).under(1.2, 1.0));
    let what = "hand-off with 10,000 waiters / with 10, process CPU above PING";
    bench.figure(Figure::new(what, grows(10, Costs::hand_off)).under(1.5, 1.2));
    bench.section(
        Section::new("Growth: waiters for one lock")
            .say(
                "Process CPU of single commands in µs, less that of PINGs with as many replies, \
                 while another client's PINGs keep the server awake. A reply to another client \
                 costs what a subscriber adds to PUBLISH. *Lock + unlock*: without contention. \
                 *Hand-off*: a WLOCK with BLOCK enters the queue, and an UNLOCK grants to the next \
                 waiter. LPUSH, LPOP and BLPOP are the server's own equivalents. From 1,000 \
                 waiters on, PINGs of long silent clients cost too much for a baseline: the \
                 figures are too low, and LPUSH's fall below zero.",
            )
            .table(
                [
                    "waiters",
                    "lock + unlock",
                    "entering the queue",
                    "UNLOCK with waiters",
                    "hand-off",
                    "LPUSH + LPOP",
                    "LPUSH to BLPOP",
                    "BLPOP + LPUSH",
                ],
                rows,
            )
            .plot("waiters", lines("A hand-off, by number of waiters", "waiters", "µs", &curves)),
    );
}

fn rounds_of(costs: &[[Costs; 2]], trade: usize, figure: fn(&Costs) -> f64) -> Rounds {
    costs.iter().map(|costs| figure(&costs[trade])).collect()
}

/// A command of a client's number, and its reply.
type Command = (fn(usize) -> String, &'static str);

/// What is handed over, and how.
struct Trade {
    /// What takes and gives back what nobody else wants.
    alone: [Command; 2],
    /// What waits for what all want.
    wait: Command,
    /// What hands it over.
    give: Command,
}

const LOCK: Trade = Trade {
    alone: [
        (|n| format!("RWLOCK.WLOCK own:{n} owner:{n} {LEASE}"), "+OK\r\n"),
        (|n| format!("RWLOCK.UNLOCK own:{n} owner:{n}"), ":1\r\n"),
    ],
    wait: (|n| format!("RWLOCK.WLOCK wanted owner:{n} {LEASE} BLOCK 0"), "+OK\r\n"),
    give: (|n| format!("RWLOCK.UNLOCK wanted owner:{n}"), ":1\r\n"),
};

const LIST: Trade = Trade {
    alone: [
        (|n| format!("LPUSH list:{n} owner"), ":1\r\n"),
        (|n| format!("LPOP list:{n}"), "$5\r\nowner\r\n"),
    ],
    wait: (|_| "BLPOP queue 0".into(), "*2\r\n$5\r\nqueue\r\n$5\r\nowner\r\n"),
    give: (|_| "LPUSH queue owner".into(), ":1\r\n"),
};

/// What a step of each kind cost in a round, in us.
struct Costs {
    ping: f64,
    unheard: f64,
    heard: f64,
    alone: [f64; 2],
    queue: f64,
    hand_over: f64,
}

impl Costs {
    fn answer(&self) -> f64 {
        self.heard - self.unheard
    }

    fn plain(&self) -> f64 {
        self.alone[0] + self.alone[1] - 2.0 * self.ping
    }

    fn queue(&self) -> f64 {
        self.queue - self.ping + self.answer()
    }

    fn hand_over(&self) -> f64 {
        self.hand_over - self.ping - self.answer()
    }

    fn hand_off(&self) -> f64 {
        self.queue() + self.hand_over()
    }
}

/// Clients that take turns, and a server of their own.
struct Ring {
    _server: Server,
    cpu: CpuClock,
    /// Those who wait, and the one who holds.
    line: Vec<TcpStream>,
    /// Each hears of a channel, and goes on sending commands, as RESP3 allows.
    others: Vec<TcpStream>,
    /// Keeps the server busy.
    busy: TcpStream,
    turn: usize,
}

impl Ring {
    fn new(bench: &mut Bench, waiters: usize) -> Self {
        let server = bench.start(Server::builder());
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connect");
            stream.set_nodelay(true).expect("switch off Nagle's algorithm");
            // One that sleeps would have to be woken.
            stream.set_nonblocking(bench.layout.spins()).expect("choose how to wait");
            stream
        };
        let line = (0..=waiters).map(connect).collect();
        let mut others: Vec<TcpStream> = (0..=waiters.min(MOST)).map(connect).collect();
        let mut busy = connect(0);
        for (number, other) in others.iter_mut().enumerate() {
            let channel = channel(number);
            // The reply is long, and nobody's concern.
            send(other, "CLIENT REPLY OFF");
            send(other, "HELLO 3");
            send(other, "CLIENT REPLY ON");
            receive(other, "+OK\r\n");
            send(other, &format!("SUBSCRIBE {channel}"));
            receive(other, &format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(&channel)));
        }
        // As the lock is free, so there is an element for the first who asks.
        send(&mut busy, &LIST.give.0(0));
        receive(&mut busy, LIST.give.1);
        let cpu = CpuClock::of(server.pid());
        Self { _server: server, cpu, others, busy, line, turn: 0 }
    }

    fn round(&mut self, turns: usize) -> [Costs; 2] {
        [LOCK, LIST].map(|trade| self.costs(&trade, turns))
    }

    /// Medians: some steps meet what the server does now and then.
    fn costs(&mut self, trade: &Trade, turns: usize) -> Costs {
        // All but one get in line, and the first gets it at once.
        for ahead in 0..self.line.len() - 1 {
            self.in_order(|ring| ring.wait(trade, ahead));
        }
        self.is_granted(trade, 0);
        let mut all: [Vec<f64>; 7] = Default::default();
        for _ in 0..turns {
            let (alone, together) = (self.alone(trade), self.together(trade));
            for (kind, cost) in all.iter_mut().zip(alone.into_iter().chain(together)) {
                kind.push(cost);
            }
            self.turn += 1;
        }
        for _ in 0..self.line.len() - 2 {
            self.give(trade);
            self.is_granted(trade, 1);
            self.turn += 1;
        }
        self.give(trade);
        self.turn += 1;
        let [ping, unheard, heard, take, give, queue, hand_over] =
            all.map(|kind| Rounds::from_iter(kind).median());
        Costs { ping, unheard, heard, alone: [take, give], queue, hand_over }
    }

    /// The steps of those who do not wait. Each client is heard of as rarely as
    /// can be.
    fn alone(&mut self, trade: &Trade) -> [f64; 5] {
        let (turn, count) = (self.turn, self.others.len());
        let [one, two, three, four, five, hearer] =
            [0, 1, 2, 3, 4, 5].map(|place| (turn + place * count / 6) % count);
        let channel = channel(hearer);
        let heard = format!(">3\r\n{}{}{}", bulk("message"), bulk(&channel), bulk("hello"));
        let [take, give] = trade.alone;
        [
            self.step(|ring| ring.ask(one, "PING", "+PONG\r\n")),
            self.step(|ring| ring.ask(two, "PUBLISH nobody hello", ":0\r\n")),
            self.step(|ring| {
                ring.ask(three, &format!("PUBLISH {channel} hello"), ":1\r\n");
                receive(&mut ring.others[hearer], &heard);
            }),
            self.step(|ring| ring.ask(four, &take.0(turn), take.1)),
            self.step(|ring| ring.ask(five, &give.0(turn), give.1)),
        ]
    }

    /// The last in the ring gets in line, and the first hands over.
    fn together(&mut self, trade: &Trade) -> [f64; 2] {
        let last = self.line.len() - 1;
        [
            self.step(|ring| ring.wait(trade, last)),
            self.step(|ring| {
                ring.give(trade);
                ring.is_granted(trade, 1);
            }),
        ]
    }

    fn ask(&mut self, other: usize, command: &str, reply: &str) {
        send(&mut self.others[other], command);
        receive(&mut self.others[other], reply);
    }

    /// The number of the one who is so far behind the holder.
    fn behind(&self, ahead: usize) -> usize {
        (self.turn + ahead) % self.line.len()
    }

    fn wait(&mut self, trade: &Trade, ahead: usize) {
        let number = self.behind(ahead);
        send(&mut self.line[number], &trade.wait.0(number));
    }

    fn is_granted(&mut self, trade: &Trade, ahead: usize) {
        let number = self.behind(ahead);
        receive(&mut self.line[number], trade.wait.1);
    }

    fn give(&mut self, trade: &Trade) {
        let number = self.behind(0);
        send(&mut self.line[number], &trade.give.0(number));
        receive(&mut self.line[number], trade.give.1);
    }

    /// Has something done before what comes next: the server looks at many
    /// sockets at once, in any order.
    fn in_order(&mut self, work: impl FnOnce(&mut Self)) {
        work(self);
        send(&mut self.busy, "PING");
        receive(&mut self.busy, "+PONG\r\n");
    }

    /// What a step costs, in us: until the server sleeps again.
    fn step(&mut self, step: impl FnOnce(&mut Self)) -> f64 {
        let before = self.cpu.now();
        self.busy.write_all(&packed_line("PING").repeat(BATCH)).expect("send a batch");
        step(self);
        receive(&mut self.busy, &"+PONG\r\n".repeat(BATCH));
        let (mut last, mut since) = (before, Instant::now());
        while last == before || since.elapsed() < ASLEEP {
            let now = self.cpu.now();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        (last - before) / 1e3
    }
}

fn channel(number: usize) -> String {
    format!("channel:{number}")
}

/// How the protocol writes a string.
fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn send(stream: &mut TcpStream, command: &str) {
    stream.write_all(&packed_line(command)).expect("send a command");
}

fn receive(stream: &mut TcpStream, reply: &str) {
    let mut received = vec![0; reply.len()];
    let mut read = 0;
    while read < reply.len() {
        match stream.read(&mut received[read..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) => panic!("the server hung up"),
            result => read += result.expect("read a reply"),
        }
    }
    assert_eq!(received, reply.as_bytes(), "{}", String::from_utf8_lossy(&received));
}
