//! What it costs the server to hand a lock over, by how many wait for it: the
//! CPU of its process, over a PING baseline with as many clients and as many
//! round trips.
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

use super::{line, Bench};
use crate::harness::{call, Server};
use crate::machine::cpu_time;
use crate::plot::{lines, Line};
use crate::report::{Figure, Section};
use crate::stats::{alternate, number, Rounds};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Of fewer than this the end of a round, in which nobody queues again, is too
/// short to be measured.
const ENOUGH: usize = 1_000;

pub fn measure(bench: &mut Bench) {
    let sizes: &[usize] = bench.size(&[10, 10_000], &[1, 10, 100, 1_000, 10_000]);
    let (rounds, turns) = bench.size((2, 5_000), (5, 10_000));
    bench.progress(format_args!("{rounds} rounds of {turns} turns, {sizes:?} waiters"));
    let mut rings: Vec<Ring> = sizes.iter().map(|size| Ring::new(bench, *size)).collect();
    let all = alternate(rounds, &mut rings, |ring, _| ring.round(turns));
    let mut curve = Line::new("rwlock");
    let mut rows = Vec::new();
    for (size, costs) in sizes.iter().zip(&all) {
        let show = |figure: fn(&Costs) -> f64| rounds_of(costs, figure).show();
        rows.push(vec![
            number(*size as f64),
            show(|costs| costs.ping),
            show(Costs::plain),
            show(Costs::handover),
            if *size < ENOUGH { "–".into() } else { show(Costs::last) },
        ]);
        curve.add(*size as f64, rounds_of(costs, Costs::handover).median());
    }
    let of = |wanted: usize| {
        let index = sizes.iter().position(|size| *size == wanted).unwrap_or_default();
        rounds_of(&all[index], Costs::handover)
    };
    let what =
        "cost of a hand-off (process CPU over a PING baseline) with 10,000 waiters / with 10";
    bench.figure(Figure::new(what, of(10_000).over(&of(10))).under(1.5, 1.2));
    bench.section(
        Section::new("Growth: waiters for one lock")
            .say(
                "Process CPU in µs, less that of two PINGs in the same rhythm with as many \
                 clients connected. *Hand-off*: an UNLOCK that hands the lock to the next \
                 waiter, both answers, and a WLOCK with BLOCK that gets into the queue. *Without \
                 queueing again*: while the queue runs empty, over one PING. Beside it the \
                 UNLOCK and WLOCK of a lock that nobody else wants.",
            )
            .table(
                [
                    "waiters",
                    "two PINGs",
                    "lock + unlock, nobody waits",
                    "hand-off",
                    "without queueing again",
                ],
                rows,
            )
            .plot(
                "waiters",
                lines("A hand-off, by the waiters there are", "waiters", "µs", &[curve]),
            ),
    );
}

fn rounds_of(costs: &[Costs], figure: fn(&Costs) -> f64) -> Rounds {
    costs.iter().map(figure).collect()
}

/// What each kind of turn cost in a round, in us.
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
    /// Do those who send it stand in a queue, in the order in which it comes?
    queues: bool,
}

impl Ring {
    /// One holds the lock and one may not have queued again yet: so many wait,
    /// or one more.
    fn new(bench: &mut Bench, waiters: usize) -> Self {
        let server = bench.start(Server::builder());
        let connect = |_| {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connect");
            stream.set_nodelay(true).expect("switch off Nagle's algorithm");
            stream
        };
        let clients = (0..waiters + 2).map(connect).collect();
        Self { server, clients, turn: 0 }
    }

    fn round(&mut self, turns: usize) -> Costs {
        let lease = 3_600_000;
        let ping = self.every(|_| "PING".into(), "+PONG\r\n");
        let (ping, _) = self.all(turns, &ping, &ping);

        let take = self.every(|n| format!("RWLOCK.WLOCK own:{n} owner:{n} {lease}"), "+OK\r\n");
        let give = self.every(|n| format!("RWLOCK.UNLOCK own:{n} owner:{n}"), ":1\r\n");
        let (plain, _) = self.all(turns, &give, &take);

        let take = |n| format!("RWLOCK.WLOCK wanted owner:{n} {lease} BLOCK 0");
        let take = Sent { queues: true, ..self.every(take, "+OK\r\n") };
        let give = self.every(|n| format!("RWLOCK.UNLOCK wanted owner:{n}"), ":1\r\n");
        let (handover, last) = self.all(turns, &give, &take);
        Costs { ping, plain, handover, last }
    }

    fn every(&self, say: impl Fn(usize) -> String, reply: &'static str) -> Sent {
        let commands = (0..self.clients.len()).map(|n| line(&say(n))).collect();
        Sent { commands, reply, queues: false }
    }

    /// What a turn costs with these two commands, and what one costs in which
    /// the second is not sent any more.
    fn all(&mut self, turns: usize, first: &Sent, second: &Sent) -> (f64, f64) {
        let mut control = self.server.connection();
        for step in 0..self.clients.len() {
            self.send(self.turn + step, second);
            if second.queues {
                // The server looks at many sockets at once, in any order, and
                // these are to come in the order of the ring.
                call!(control, "PING").expect("ping");
            }
        }
        let cost = self.turns(turns, first, second, true);
        (cost, self.turns(self.clients.len(), first, second, false))
    }

    /// So many turns; what one cost, in us.
    fn turns(&mut self, count: usize, first: &Sent, second: &Sent, again: bool) -> f64 {
        let before = cpu_time(self.server.pid());
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
        (cpu_time(self.server.pid()) - before) / 1e3 / count as f64
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
}
