//! Clients that each take several locks and give all of them back, again and
//! again, each as its contender has them wait.

use super::Net;
use crate::contenders::transfers::{Mover, Transfer};
use crate::contenders::Waits;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::Random;

/// How many transfers a client has ready as bytes: to write them takes time that
/// is not the contender's.
const READY: usize = 64;

/// What the clients do.
pub struct Transfers {
    pub clients: usize,
    /// How many locks each takes, of how many.
    pub locks: usize,
    pub accounts: usize,
    pub time: Duration,
    /// Of the network, as [`Net::with_round_trip`] has it.
    pub round_trip: Duration,
    pub spins: bool,
}

/// What came of it.
#[derive(Clone)]
pub struct Moved {
    /// How often each client has taken and given back.
    pub cycles: Vec<u64>,
    pub elapsed: Duration,
    pub requests: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Away,
    Asking,
    Subscribing,
    Listening,
    Pausing,
    Giving,
}

struct Client {
    conn: usize,
    ready: Vec<Transfer>,
    /// Which of these it does now, and which step of it.
    transfer: usize,
    step: usize,
    phase: Phase,
    /// The connection on which it hears messages, if its contender sends any.
    ear: Option<usize>,
    subscribed: bool,
    /// Has a message come while it asked?
    called: bool,
    /// How many answers to giving back are still to come.
    left: usize,
    /// Replies of before that nobody waits for.
    late: usize,
}

/// Whose connection it is.
#[derive(Clone, Copy)]
enum Owner {
    Client(usize),
    Ear(usize),
}

struct Clients<'a> {
    mover: &'a Mover,
    net: Net,
    clients: Vec<Client>,
    owners: Vec<Owner>,
    /// The connections that the last wait was about.
    ready: Vec<usize>,
    alarms: BinaryHeap<Reverse<(Instant, usize)>>,
    random: Random,
    moved: Moved,
    /// Nobody begins any more.
    ending: bool,
}

impl Transfers {
    /// Clients of this contender do it for that long. `probe` looks when all are
    /// connected, just before they begin, and again when the time is up.
    pub fn run<T>(&self, mover: &Mover, probe: impl FnMut() -> T) -> (Moved, [T; 2]) {
        let mut random = Random::new(1);
        let mut net = Net::new(self.spins).with_round_trip(self.round_trip);
        let names = self.names();
        let mut clients: Vec<Client> = (0..self.clients)
            .map(|number| {
                let conn = connect(&mut net, mover);
                let ready = (0..READY)
                    .map(|_| mover.transfer(&draw(&names, self.locks, &mut random), number))
                    .collect();
                Client::new(conn, ready)
            })
            .collect();
        let mut owners: Vec<Owner> = (0..self.clients).map(Owner::Client).collect();
        if let Waits::Channel(_) = mover.contender.waits {
            for (number, client) in clients.iter_mut().enumerate() {
                client.ear = Some(net.connect(mover.contender.port, mover.contender.protocol));
                owners.push(Owner::Ear(number));
            }
        }
        let all = Clients {
            mover,
            net,
            clients,
            owners,
            ready: Vec::new(),
            alarms: BinaryHeap::new(),
            random,
            moved: Moved { cycles: vec![0; self.clients], elapsed: Duration::ZERO, requests: 0 },
            ending: false,
        };
        all.run(self.time, probe)
    }

    /// The accounts, in order. No run meets what others have left behind.
    fn names(&self) -> Vec<String> {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        (0..self.accounts).map(|number| format!("account:{run}:{number:03}")).collect()
    }
}

/// So many names, each at most once, in any order.
fn draw(names: &[String], count: usize, random: &mut Random) -> Vec<String> {
    let mut left: Vec<&String> = names.iter().collect();
    (0..count).map(|_| left.swap_remove(random.below_len(left.len())).clone()).collect()
}

fn connect(net: &mut Net, mover: &Mover) -> usize {
    let conn = net.connect(mover.contender.port, mover.contender.protocol);
    for greeting in &mover.greet {
        let reply = net.ask(conn, greeting);
        assert!(!mover.contender.failed(&reply), "{}", show(&reply));
    }
    conn
}

impl Client {
    fn new(conn: usize, ready: Vec<Transfer>) -> Self {
        Self {
            conn,
            ready,
            transfer: 0,
            step: 0,
            phase: Phase::Away,
            ear: None,
            subscribed: false,
            called: false,
            left: 0,
            late: 0,
        }
    }
}

impl Clients<'_> {
    fn run<T>(mut self, time: Duration, mut probe: impl FnMut() -> T) -> (Moved, [T; 2]) {
        let before = probe();
        let begin = Instant::now();
        let end = begin + time;
        for client in 0..self.clients.len() {
            self.begin(client);
        }
        while Instant::now() < end {
            self.step(end);
        }
        self.moved.elapsed = begin.elapsed();
        // Before the connections close, which is work for the server too.
        let after = probe();
        let moved = self.moved.clone();
        self.end();
        (moved, [before, after])
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
                self.ask(client);
            }
        }
    }

    /// Each client ends its transfer: no lock stays held.
    fn end(&mut self) {
        self.ending = true;
        let limit = Instant::now() + Duration::from_secs(20);
        while self.clients.iter().any(|client| client.phase != Phase::Away) {
            assert!(Instant::now() < limit, "{}: a client waits for ever", self.mover.name);
            self.step(limit);
        }
    }

    /// All replies and messages that have come on this connection.
    fn drain(&mut self, conn: usize) {
        match self.owners[conn] {
            Owner::Client(client) => {
                while let Some(reply) = self.net.reply(conn) {
                    let held = self.mover.contender.held(reply);
                    let failed = !held && self.mover.contender.failed(reply);
                    assert!(!failed, "{}: {}", self.mover.name, show(reply));
                    let given = reply.starts_with(&self.mover.given);
                    self.answered(client, held, given);
                }
            }
            Owner::Ear(client) => {
                while let Some(message) = self.net.reply(conn) {
                    // An array whose first element names what it is.
                    match message.get(8..11) {
                        Some(b"sub") => self.ask(client),
                        Some(b"mes") => self.call(client),
                        _ => {}
                    }
                }
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.phase = Phase::Away;
        if !self.ending {
            (this.transfer, this.step) = (self.random.below_len(READY), 0);
            self.ask(client);
        }
    }

    fn ask(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.phase = Phase::Asking;
        self.net.send(this.conn, &this.ready[this.transfer].take[this.step].ask);
        self.moved.requests += 1;
    }

    fn answered(&mut self, client: usize, held: bool, given: bool) {
        let this = &mut self.clients[client];
        if this.late > 0 {
            this.late -= 1;
            return;
        }
        match this.phase {
            Phase::Asking if held => self.held(client),
            Phase::Asking => self.refused(client),
            Phase::Giving => {
                assert!(given, "{}: gave back a lock that it did not hold", self.mover.name);
                this.left -= 1;
                if this.left == 0 {
                    self.given(client);
                }
            }
            _ => panic!("a reply that nobody asked for"),
        }
    }

    fn refused(&mut self, client: usize) {
        match self.mover.contender.waits {
            Waits::InServer => panic!("refused, though it waits in the server"),
            Waits::Again(pause) => {
                self.clients[client].phase = Phase::Pausing;
                self.alarms.push(Reverse((Instant::now() + pause, client)));
            }
            Waits::Channel(_) => self.listen(client),
        }
    }

    /// It subscribes, if it has not; then it asks again; then it waits for a
    /// message.
    fn listen(&mut self, client: usize) {
        let this = &mut self.clients[client];
        if this.subscribed && std::mem::take(&mut this.called) {
            self.ask(client);
        } else if this.subscribed {
            this.phase = Phase::Listening;
        } else {
            this.subscribed = true;
            this.phase = Phase::Subscribing;
            self.tell_ear(client, true);
        }
    }

    /// A writer of the lock that it waits for has gone.
    fn call(&mut self, client: usize) {
        let this = &mut self.clients[client];
        match this.phase {
            Phase::Listening => self.ask(client),
            Phase::Asking => this.called = this.subscribed,
            // Of a lock that it has got since.
            _ => {}
        }
    }

    /// Subscribes to the channel of the lock that it asks for, or unsubscribes.
    fn tell_ear(&mut self, client: usize, subscribe: bool) {
        let this = &self.clients[client];
        let step = &this.ready[this.transfer].take[this.step];
        let request = if subscribe { &step.subscribe } else { &step.unsubscribe };
        self.net.send(this.ear.expect("a connection for messages"), request);
        self.moved.requests += 1;
    }

    fn held(&mut self, client: usize) {
        if std::mem::take(&mut self.clients[client].subscribed) {
            self.tell_ear(client, false);
        }
        let this = &mut self.clients[client];
        this.called = false;
        this.step += 1;
        if this.step < this.ready[this.transfer].take.len() {
            self.ask(client);
        } else {
            self.give(client);
        }
    }

    fn give(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let give = &this.ready[this.transfer].give;
        (this.phase, this.left) = (Phase::Giving, give.count);
        self.net.send(this.conn, &give.bytes);
        self.moved.requests += give.count as u64;
    }

    fn given(&mut self, client: usize) {
        self.moved.cycles[client] += 1;
        let this = &mut self.clients[client];
        let after = &this.ready[this.transfer].after;
        if after.count > 0 {
            // Nobody waits for the answers.
            this.late += after.count;
            self.net.send(this.conn, &after.bytes);
            self.moved.requests += after.count as u64;
        }
        self.begin(client);
    }
}

fn show(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned()
}
