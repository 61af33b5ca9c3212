//! Clients that take, give back, vanish and disturb each other at random, and
//! what is held against every reply.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use redis::Connection;

use super::books::{Asked, Books, Lock, Over, Owner, Target, Which};
use super::client::{Client, Pending, Take, What};
use support::wire::{readable, Cut, Wire};
use support::Random;
use support::{send, Server};

pub const CLIENTS: usize = 200;
pub const DATABASES: u8 = 2;
pub const LOCKS: usize = 20;
/// The first clients have an owner each; the others share these.
pub const OWN: usize = 100;
pub const SHARED: usize = 24;

/// How long the server may take on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Storm {
    port: u16,
    pub random: Random,
    pub books: Books,
    pub clients: Vec<Client>,
    /// It sends PINGs all the time.
    control: Wire,
    /// Every lock and owner that holds were asked for.
    pub(super) asked: HashSet<(Lock, Owner)>,
    /// How often each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Disconnects, time-outs and everything else that is no plain use.
    pub events: u64,
    /// What was sent and heard last, to be told when something is wrong.
    history: VecDeque<String>,
    /// Whether the server may close a connection that CLIENT UNBLOCK names, as
    /// one before 7.2 loses its answer.
    pub unblocking_may_close: bool,
    started: Instant,
}

pub fn lock_name(lock: Lock) -> String {
    format!("lock{}", lock.1)
}

pub fn owner_name(owner: Owner) -> String {
    format!("owner{owner}")
}

impl Storm {
    pub fn new(server: &Server, seed: u64) -> Self {
        let port = server.port();
        let now = Instant::now();
        let mut control = Wire::connect(port);
        control.send("PING");
        let clients = (0..CLIENTS)
            .map(|number| {
                let db = if number % 2 == 0 { 0 } else { DATABASES - 1 };
                Client::new(Wire::connect(port), db, (number < OWN).then_some(number), now)
            })
            .collect();
        let mut storm = Self {
            port,
            random: Random::new(seed),
            books: Books::default(),
            clients,
            control,
            asked: HashSet::new(),
            counts: BTreeMap::new(),
            events: 0,
            history: VecDeque::new(),
            unblocking_may_close: !server.version().at_least((7, 2), (8, 0)),
            started: now,
        };
        for number in 0..CLIENTS {
            storm.greet(number);
        }
        storm
    }

    /// Goes on until so many events more have happened.
    pub fn rage(&mut self, events: u64) {
        let target = self.events + events;
        while self.events < target {
            self.pass();
            let now = Instant::now();
            for number in 0..CLIENTS {
                let client = &self.clients[number];
                if client.next <= now
                    && client.pending.is_empty()
                    && client.doomed.is_none()
                    && client.id.is_some()
                {
                    self.act(number);
                    let pause = Duration::from_micros(self.random.below(4_000));
                    self.clients[number].next = Instant::now() + pause;
                }
            }
            for _ in 0..2 {
                if self.random.chance(35) {
                    let number = self.random.below_len(CLIENTS);
                    self.count("disconnect");
                    self.cut(number);
                }
            }
        }
    }

    /// Waits until nobody waits for anything that ends by itself.
    pub fn calm(&mut self) {
        let busy = |client: &Client| client.pending.iter().any(|p| p.deadline.is_some());
        while self.clients.iter().any(busy) || self.clients.iter().any(|c| c.doomed.is_some()) {
            self.pass();
        }
    }

    /// Gives everything back, until nobody waits.
    pub fn wind_up(&mut self, janitor: &mut Connection) {
        let started = Instant::now();
        while self.clients.iter().any(|client| !client.pending.is_empty()) {
            assert!(started.elapsed() < PATIENCE * 3, "some wait for ever: {:?}", self.waiting());
            self.give_everything_back(janitor);
            self.pass();
        }
        self.give_everything_back(janitor);
        for client in self.clients.drain(..) {
            client.wire.cut(Cut::Close);
        }
    }

    fn give_everything_back(&mut self, janitor: &mut Connection) {
        let mut asked: Vec<(Lock, Owner)> = self.asked.iter().copied().collect();
        asked.sort_unstable();
        for db in 0..DATABASES {
            send(janitor, ["SELECT".to_owned(), db.to_string()]).expect("select a database");
            for (lock, owner) in asked.iter().filter(|(lock, _)| lock.0 == db) {
                let target = Target::Owner(*lock, *owner);
                let now = Instant::now();
                self.books.give_up(*lock, *owner, Which::All, now);
                self.books.begin(target, now);
                let names = [&*lock_name(*lock), &*owner_name(*owner)].map(str::to_owned);
                let words = ["RWLOCK.UNLOCK".to_owned()].into_iter().chain(names);
                let reply = send(janitor, words.chain(["ALL".to_owned()]));
                if let Err(error) = reply {
                    assert_eq!(error.code(), Some("NOTHELD"), "{error}");
                }
                self.books.end(target, Over::Replied(Instant::now()));
            }
        }
    }

    /// How many releases are under way, behind a request that waits.
    pub fn releases(&self) -> usize {
        let pending = self.clients.iter().flat_map(|client| &client.pending);
        pending.filter(|pending| matches!(pending.what, What::Give(..))).count()
    }

    /// Those who wait in the server: the client's id, and what it asked for.
    pub fn waiting(&self) -> Vec<(i64, Asked, Take)> {
        let waits = |client: &Client| {
            let (asked, take) = client.blocking()?;
            Some((client.id?, asked, take))
        };
        self.clients.iter().filter_map(waits).collect()
    }

    /// Reads what the server says, and looks whether anybody waits in vain.
    pub fn pass(&mut self) {
        let wires = self.clients.iter().map(|client| &client.wire);
        let readable = readable(wires.chain([&self.control]));
        for (number, _) in readable[..CLIENTS].iter().enumerate().filter(|(_, is)| **is) {
            self.listen(number);
        }
        if readable[CLIENTS] {
            let received = self.control.receive();
            assert!(!received.closed, "the server is gone");
            for line in received.replies {
                assert_eq!(line, "+PONG");
                self.books.ping_answered();
                self.control.send("PING");
            }
        }
        let now = Instant::now();
        for (number, client) in self.clients.iter().enumerate() {
            if let Some(pending) = client.pending.front() {
                let late = pending.deadline.is_some_and(|deadline| now > deadline);
                assert!(!late, "client {number} was never answered: {pending:?}, now {now:?}");
            }
        }
    }

    fn listen(&mut self, number: usize) {
        let received = self.clients[number].wire.receive();
        for line in received.replies {
            let pending = self.clients[number].pending.pop_front();
            let pending = pending.unwrap_or_else(|| panic!("nobody asked for {line:?}"));
            self.remember(number, &line);
            self.hear(number, pending, &line);
        }
        if received.closed {
            let client = &self.clients[number];
            let unblocked = client.unblocks > 0 || client.unblocked.is_some();
            let why = client.doomed.is_some() || self.unblocking_may_close && unblocked;
            assert!(why, "client {number} was cut off: {:?}", client.pending);
            self.count("cut off");
            self.lost(number, Cut::Close);
        }
    }

    /// Sends a request, and remembers that.
    pub(super) fn ask(&mut self, number: usize, line: &str, what: What) {
        let now = Instant::now();
        self.remember(number, line);
        let client = &mut self.clients[number];
        // A client that waits reads nothing before that is over.
        let before = client.pending.back().map_or(Some(now), |last| last.deadline);
        let deadline = match what {
            What::Take(_, Take { block: Some(Duration::ZERO), .. }) => None,
            What::Take(_, Take { block: Some(block), .. }) => before.map(|b| b + block + PATIENCE),
            _ => before.map(|before| before + PATIENCE),
        };
        client.pending.push_back(Pending { what, deadline });
        client.wire.send(line);
    }

    fn greet(&mut self, number: usize) {
        let select = format!("SELECT {}", self.clients[number].db);
        self.ask(number, &select, What::Select);
        self.ask(number, "CLIENT ID", What::Id);
    }

    /// A connection ends, whatever it is doing.
    pub(super) fn cut(&mut self, number: usize) {
        self.events += 1;
        let how = if self.random.chance(50) { Cut::Close } else { Cut::Reset };
        self.lost(number, how);
    }

    /// Takes a connection off the books, and opens another one.
    fn lost(&mut self, number: usize, how: Cut) {
        let now = Instant::now();
        let client = &mut self.clients[number];
        let fresh = Client {
            held: std::mem::take(&mut client.held),
            unblocks: client.unblocks,
            ..Client::new(Wire::connect(self.port), client.db, client.own, now)
        };
        let gone = std::mem::replace(client, fresh);
        let books = &mut self.books;
        for (lock, owner) in gone.sessions {
            let target = Target::Owner(lock, owner);
            books.begin(target, now);
            books.lose(lock, owner);
            books.end(target, Over::Lost);
        }
        for (lock, owner) in gone.doomed.into_iter().flatten() {
            books.end(Target::Owner(lock, owner), Over::Lost);
        }
        let mut orphaned = Vec::new();
        for Pending { what, .. } in gone.pending {
            match what {
                What::Take(asked, take) => {
                    let held = (asked.lock, asked.owner, take.want.kind());
                    self.clients[number].held.push(held);
                }
                What::Give(asked, ..) | What::Downgrade(asked) => {
                    books.end(Target::Owner(asked.lock, asked.owner), Over::Lost);
                }
                What::Remove(targets) => {
                    for target in targets {
                        books.end(target, Over::Lost);
                    }
                }
                What::Unblock(other, targets) => {
                    for target in targets {
                        books.end(target, Over::Lost);
                    }
                    let other = &mut self.clients[other];
                    other.unblocks -= 1;
                    // It may still be about to happen.
                    other.unblocked = other.unblocked.max(Some(now + PATIENCE));
                }
                // Nobody knows whether the server will still do it.
                What::Kill(other) if self.clients[other].doomed.is_some() => orphaned.push(other),
                What::Select | What::Id | What::Renew(_) | What::Kill(_) => {}
            }
        }
        gone.wire.cut(how);
        self.remember(number, "is cut off");
        self.greet(number);
        for other in orphaned {
            self.cut(other);
        }
    }

    fn remember(&mut self, number: usize, line: &str) {
        const ENOUGH: usize = 20_000;
        self.history.truncate(ENOUGH);
        let id = self.clients[number].id.unwrap_or(0);
        let at = self.started.elapsed();
        self.history.push_front(format!("{at:?} client {number} ({id}): {line}"));
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl Drop for Storm {
    /// Tells what happened before a failure.
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(path) = std::env::var_os("RWLOCK_HISTORY") {
                let lines: Vec<String> = self.history.drain(..).rev().collect();
                std::fs::write(path, lines.join("\n")).expect("write the history");
            }
        }
    }
}
