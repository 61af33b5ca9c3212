//! Clients that take and give back locks, each as its contender has them wait.

use super::Net;
use crate::contenders::{Contender, Kind, Processes, Talk, Waits};
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::Random;

/// What the clients do.
#[derive(Clone)]
pub struct Load {
    pub clients: usize,
    /// How many of a hundred requests want to read.
    pub reads: u64,
    /// Each client has a lock of its own, or all want the same.
    pub alone: bool,
    /// How long a hold is kept, from 75 to 125 of a hundred of this. With a
    /// hold to keep, who has given back asks again when another one has it.
    pub hold: Duration,
    pub time: Duration,
    pub spins: bool,
}

/// What came of it.
#[derive(Clone)]
pub struct Outcome {
    /// How often each client has taken and given back.
    pub cycles: Vec<u64>,
    pub elapsed: Duration,
    /// From the release to the next owner's answer, in ns.
    pub handoffs: Histogram<u64>,
    pub requests: u64,
    pub bytes: u64,
}

impl Outcome {
    pub fn total(&self) -> f64 {
        self.cycles.iter().sum::<u64>() as f64
    }

    pub fn per_second(&self) -> f64 {
        self.total() / self.elapsed.as_secs_f64()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Away,
    Taking,
    Subscribing,
    Listening,
    Holding,
    Giving,
}

struct Client {
    conn: usize,
    /// Its process.
    process: usize,
    talk: Talk,
    kind: Kind,
    phase: Phase,
    /// Does its process subscribe for it?
    subscribed: bool,
    /// Replies of before that nobody waits for.
    late: usize,
}

/// What the threads of a process share, as Redisson has it for each lock.
struct Process {
    conn: usize,
    /// How many of its threads wait.
    users: usize,
    /// Is it subscribed?
    ready: bool,
    /// Who waits for that.
    subscribing: Vec<usize>,
    listening: VecDeque<usize>,
    /// Messages for those who were not listening.
    permits: usize,
}

/// Whose connection it is.
#[derive(Clone, Copy)]
enum Owner {
    Client(usize),
    Process(usize),
}

struct Clients<'a> {
    contender: &'a Contender,
    load: Load,
    net: Net,
    clients: Vec<Client>,
    processes: Vec<Process>,
    owners: Vec<Owner>,
    /// The connections that the last wait was about.
    ready: Vec<usize>,
    alarms: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Who has given back and asks again when another one has it.
    polite: VecDeque<usize>,
    released: Option<Instant>,
    random: Random,
    outcome: Outcome,
    /// Nobody begins any more.
    ending: bool,
}

impl Load {
    /// Clients of this contender do it for that long. `probe` looks when all are
    /// connected, just before they begin, and again when they end.
    pub fn run<T>(&self, contender: &Contender, probe: impl FnMut() -> T) -> (Outcome, [T; 2]) {
        // Nobody meets what others have left behind.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let mut net = Net::new(self.spins);
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let lock = match self.alone {
                true => format!("orders:{run}:{number}"),
                false => format!("orders:{run}"),
            };
            let talk = contender.talk(&lock, number);
            let conn = net.connect(contender.port, contender.protocol);
            for greeting in &talk.greet {
                let reply = net.ask(conn, greeting);
                assert!(!contender.failed(&reply), "{:?}", show(&reply));
            }
            clients.push(Client {
                conn,
                process: 0,
                talk,
                kind: Kind::Write,
                phase: Phase::Away,
                subscribed: false,
                late: 0,
            });
        }
        let mut owners: Vec<Owner> = (0..self.clients).map(Owner::Client).collect();
        let mut processes = Vec::new();
        if let Waits::Channel(shared) = contender.waits {
            for (number, client) in clients.iter_mut().enumerate() {
                if number == 0 || shared == Processes::Many {
                    owners.push(Owner::Process(processes.len()));
                    processes.push(Process {
                        conn: net.connect(contender.port, contender.protocol),
                        users: 0,
                        ready: false,
                        subscribing: Vec::new(),
                        listening: VecDeque::new(),
                        permits: 0,
                    });
                }
                client.process = processes.len() - 1;
            }
        }
        let outcome = Outcome {
            cycles: vec![0; self.clients],
            elapsed: Duration::ZERO,
            handoffs: Histogram::new(3).expect("make a histogram"),
            requests: 0,
            bytes: 0,
        };
        let all = Clients {
            contender,
            load: self.clone(),
            net,
            clients,
            processes,
            owners,
            ready: Vec::new(),
            alarms: BinaryHeap::new(),
            polite: VecDeque::new(),
            released: None,
            random: Random::new(1),
            outcome,
            ending: false,
        };
        all.run(probe)
    }
}

impl Clients<'_> {
    fn run<T>(mut self, mut probe: impl FnMut() -> T) -> (Outcome, [T; 2]) {
        (self.net.sent, self.net.received) = (0, 0);
        let before = probe();
        let begin = Instant::now();
        let end = begin + self.load.time;
        for client in 0..self.clients.len() {
            self.begin(client);
        }
        while Instant::now() < end {
            self.step(end);
        }
        self.outcome.elapsed = begin.elapsed();
        // Before the connections close, which is work for the server too.
        let after = probe();
        self.outcome.bytes = self.net.sent + self.net.received;
        let outcome = self.outcome.clone();
        self.end();
        (outcome, [before, after])
    }

    /// Replies and alarms that come until then, or some of them.
    fn step(&mut self, end: Instant) {
        let next = self.alarms.peek().map_or(end, |Reverse((at, _))| (*at).min(end));
        let mut ready = std::mem::take(&mut self.ready);
        self.net.wait(next, &mut ready);
        for &conn in &ready {
            self.drain(conn);
        }
        self.ready = ready;
        let now = Instant::now();
        while self.alarms.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, client))) = self.alarms.pop() {
                self.rung(client);
            }
        }
    }

    /// Who waits in the server gets the lock and gives it back: etcd 3.4 does
    /// not get over many requests that are given up at once.
    fn end(&mut self) {
        self.ending = true;
        let limit = Instant::now() + Duration::from_secs(20);
        let waits = |client: &Client| client.phase != Phase::Away;
        while matches!(self.contender.waits, Waits::InServer)
            && self.clients.iter().any(waits)
            && Instant::now() < limit
        {
            self.step(limit);
        }
    }

    /// All replies and messages that have come on this connection.
    fn drain(&mut self, conn: usize) {
        match self.owners[conn] {
            Owner::Client(client) => {
                while let Some(reply) = self.net.reply(conn) {
                    let held = self.contender.held(reply);
                    assert!(held || !self.contender.failed(reply), "{:?}", show(reply));
                    self.answered(client, held);
                }
            }
            Owner::Process(process) => {
                while let Some(message) = self.net.reply(conn) {
                    // An array whose first element names what it is, the last
                    // what a message says.
                    match (message.get(8..11), message.get(message.len() - 3)) {
                        (Some(b"sub"), _) => self.subscribed(process),
                        (Some(b"mes"), Some(b'0')) => self.call_one(process),
                        (Some(b"mes"), _) => self.call_all(process),
                        _ => {}
                    }
                }
            }
        }
    }

    fn begin(&mut self, client: usize) {
        if self.ending {
            return;
        }
        let reads = self.load.reads > 0 && self.random.below(100) < self.load.reads;
        self.clients[client].kind = if reads { Kind::Read } else { Kind::Write };
        self.take(client);
    }

    fn take(&mut self, client: usize) {
        let Client { conn, talk, kind, phase, .. } = &mut self.clients[client];
        *phase = Phase::Taking;
        self.net.send(*conn, &talk.take[*kind as usize]);
        self.outcome.requests += 1;
    }

    fn answered(&mut self, client: usize, held: bool) {
        let this = &mut self.clients[client];
        if this.late > 0 {
            this.late -= 1;
            return;
        }
        match this.phase {
            Phase::Taking if held => self.held(client),
            Phase::Taking => self.refused(client),
            Phase::Giving => self.given(client),
            _ => panic!("a reply that nobody asked for"),
        }
    }

    fn refused(&mut self, client: usize) {
        let this = &mut self.clients[client];
        match self.contender.waits {
            Waits::InServer => panic!("refused, though it waits in the server"),
            Waits::Again(pause) => {
                this.phase = Phase::Away;
                self.alarms.push(Reverse((Instant::now() + pause, client)));
            }
            Waits::Channel(_) => self.listen(client),
        }
    }

    /// Its process subscribes, if it has not; then it asks again; then it waits
    /// for a message.
    fn listen(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let process = &mut self.processes[this.process];
        if this.subscribed && process.permits == 0 {
            this.phase = Phase::Listening;
            process.listening.push_back(client);
            return;
        }
        if this.subscribed {
            process.permits -= 1;
        } else {
            this.subscribed = true;
            process.users += 1;
            if !process.ready {
                this.phase = Phase::Subscribing;
                process.subscribing.push(client);
                if process.users == 1 {
                    self.net.send(process.conn, &this.talk.subscribe);
                    self.outcome.requests += 1;
                }
                return;
            }
        }
        self.take(client);
    }

    fn subscribed(&mut self, process: usize) {
        self.processes[process].ready = true;
        for client in std::mem::take(&mut self.processes[process].subscribing) {
            self.take(client);
        }
    }

    /// Readers have gone: one of the process may try.
    fn call_one(&mut self, process: usize) {
        match self.processes[process].listening.pop_front() {
            Some(client) => self.take(client),
            None => self.processes[process].permits += 1,
        }
    }

    /// A writer has gone: all of the process may try.
    fn call_all(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let listening = std::mem::take(&mut this.listening);
        this.permits = this.users - listening.len();
        for client in listening {
            self.take(client);
        }
    }

    fn held(&mut self, client: usize) {
        let now = Instant::now();
        if let Some(released) = self.released.take() {
            let ns = u64::try_from((now - released).as_nanos()).unwrap_or(u64::MAX);
            self.outcome.handoffs.record(ns).expect("a histogram that grows");
        }
        let this = &mut self.clients[client];
        if this.subscribed {
            this.subscribed = false;
            let process = &mut self.processes[this.process];
            process.users -= 1;
            if process.users == 0 {
                (process.ready, process.permits) = (false, 0);
                self.net.send(process.conn, &this.talk.unsubscribe);
                self.outcome.requests += 1;
            }
        }
        if self.load.hold.is_zero() {
            self.give(client);
            return;
        }
        self.clients[client].phase = Phase::Holding;
        let hundredths = u32::try_from(75 + self.random.below(50)).unwrap_or(100);
        self.alarms.push(Reverse((now + self.load.hold * hundredths / 100, client)));
        while let Some(other) = self.polite.pop_front() {
            self.begin(other);
        }
    }

    fn rung(&mut self, client: usize) {
        match self.clients[client].phase {
            Phase::Holding => {
                self.released = Some(Instant::now());
                self.give(client);
            }
            _ => self.take(client),
        }
    }

    fn give(&mut self, client: usize) {
        let Client { conn, talk, kind, phase, .. } = &mut self.clients[client];
        *phase = Phase::Giving;
        self.net.send(*conn, &talk.give[*kind as usize]);
        self.outcome.requests += 1;
    }

    fn given(&mut self, client: usize) {
        self.outcome.cycles[client] += 1;
        let this = &mut self.clients[client];
        if let Some(after) = &this.talk.after {
            // Nobody waits for its answer.
            this.late += 1;
            self.net.send(this.conn, after);
            self.outcome.requests += 1;
        }
        this.phase = Phase::Away;
        if self.load.hold.is_zero() || self.released.is_none() && self.clients.len() > 1 {
            // Nobody to be polite to, or another one has it already.
            self.begin(client);
        } else {
            self.polite.push_back(client);
        }
    }
}

fn show(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned()
}
