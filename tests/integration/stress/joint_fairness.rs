//! Under `fifo` nobody passes a client that waits for several locks. Sixty-four clients take
//! and give back ten locks in a loop, one lock each. A client that waits for all ten locks gets
//! them after those that stood before it in the ten queues, and after nobody else.
//!
//! The server tells the order of the grants, by its keyspace events.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use redis::{Connection, Value};

use crate::monitoring::figures::assert_info_at_rest;
use support::observe::{run, Subscriber};
use support::wire::{packed_line, readable, Wire};
use support::{assert_ok, fresh_seed, int, list, map, number_from_environment, wait_until};
use support::{Random, Server, DEADLINE};

const CLIENTS: usize = 64;
const LOCKS: usize = 10;
const ROUNDS: usize = 500;

/// In ms: longer than the test takes.
const LEASE: u64 = 600_000;

/// The channel of the grants. The test publishes marks there as well.
const GRANTS: &str = "__keyevent@0__:rwlock.acquire";

fn lock(number: usize) -> String {
    format!("lock:{number}")
}

fn all_locks() -> String {
    (0..LOCKS).map(lock).collect::<Vec<_>>().join(" ")
}

/// Whether a client wants its lock again at once. About half of those of each lock do: so
/// there is always a queue, and it is never the same.
fn is_eager(client: usize) -> bool {
    (client / LOCKS) % 2 == 0
}

/// The clients that want one lock each, all in one thread.
struct Crowd<'t> {
    wires: Vec<Wire>,
    random: Random,
    /// Those that want nothing for a moment.
    idle: BTreeSet<usize>,
    /// How many commands are not answered.
    open: usize,
    /// How many locks were granted.
    turns: &'t AtomicU64,
    /// Whether they give their locks back and go.
    stop: &'t AtomicBool,
}

impl<'t> Crowd<'t> {
    fn gather(port: u16, random: Random, turns: &'t AtomicU64, stop: &'t AtomicBool) -> Self {
        let wires = (0..CLIENTS).map(|_| Wire::connect(port)).collect();
        Self { wires, random, idle: (0..CLIENTS).collect(), open: 0, turns, stop }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn take(&mut self, client: usize) {
        let lock = lock(client % LOCKS);
        self.send(client, &format!("RWLOCK.WLOCK {lock} client-{client} {LEASE} BLOCK 0"));
    }

    fn give(&mut self, client: usize) {
        let lock = lock(client % LOCKS);
        self.send(client, &format!("RWLOCK.UNLOCK {lock} client-{client}"));
    }

    fn send(&mut self, client: usize, line: &str) {
        self.open += 1;
        self.wires[client].send(line);
    }

    fn hear(&mut self, client: usize, reply: &str) {
        self.open -= 1;
        match reply {
            ":1" => {}
            "+OK" => {
                self.turns.fetch_add(1, Ordering::Relaxed);
                self.give(client);
                if self.goes_on() && is_eager(client) {
                    self.take(client);
                } else {
                    self.idle.insert(client);
                }
            }
            other => panic!("client {client}: {other:?}"),
        }
    }

    /// Each takes and gives back its lock until they are to stop.
    fn go_on(mut self) {
        let mut heard = Instant::now();
        while self.goes_on() || self.open > 0 {
            for client in self.idle.clone() {
                if self.goes_on() && self.random.chance(5) {
                    self.idle.remove(&client);
                    self.take(client);
                }
            }
            let ready = readable(self.wires.iter());
            for (client, _) in ready.into_iter().enumerate().filter(|(_, ready)| *ready) {
                for reply in self.wires[client].receive().replies {
                    self.hear(client, &reply);
                    heard = Instant::now();
                }
            }
            assert!(heard.elapsed() < DEADLINE, "nobody is granted a lock");
        }
    }
}

/// Tells the crowd to stop, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The client that wants all locks.
struct Joint {
    con: Connection,
    grants: Subscriber,
}

impl Joint {
    fn new(server: &Server) -> Self {
        let grants = Subscriber::channel(server, GRANTS.as_bytes());
        Self { con: server.connection(), grants }
    }

    /// Waits once for all locks. Gives how many clients stood before it in each queue.
    fn wait_once(&mut self) -> Vec<usize> {
        let before = self.arrive();
        assert_ok(self.con.recv_response());
        int(run(&mut self.con, &format!("PUBLISH {GRANTS} granted")));
        self.grants.until("arrival");
        let granted = self.grants.until("granted");
        for (number, before) in before.iter().enumerate() {
            let granted = granted.iter().filter(|name| **name == lock(number)).count();
            // One is its own.
            assert_eq!(granted, before + 1, "grants of {}", lock(number));
        }
        let released = run(&mut self.con, &format!("RWLOCK.MUNLOCK j WRITE 10 {}", all_locks()));
        assert_eq!(list(released), vec![Value::Int(1); LOCKS]);
        before
    }

    /// Counts the clients in each queue and joins all queues. The server carries out what it
    /// reads at once from one connection without a break, so nobody comes in between.
    fn arrive(&mut self) -> Vec<usize> {
        let inspect = (0..LOCKS).map(|number| format!("RWLOCK.INSPECT {}", lock(number)));
        let mut lines = vec!["MULTI".to_owned()];
        lines.extend(inspect);
        lines.push(format!("PUBLISH {GRANTS} arrival"));
        let queued = lines.len() - 1;
        lines.push("EXEC".to_owned());
        lines.push(format!("RWLOCK.MLOCK j {LEASE} WRITE 10 {} BLOCK 0", all_locks()));
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed_line(line)).collect();
        self.con.send_packed_command(&bytes).expect("send it");
        for _ in 0..=queued {
            self.con.recv_response().expect("OK, or QUEUED");
        }
        let seen = list(self.con.recv_response());
        let count = |seen: &Value| list(&map(seen)["waiters"]).len();
        seen[..LOCKS].iter().map(count).collect()
    }
}

#[test]
fn a_waiter_of_ten_locks_waits_for_those_before_it_and_for_nobody_else() {
    let seed = number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let server = Server::builder()
        .module_arguments("policy fifo")
        .config("notify-keyspace-events", "Ed")
        .start();
    let (turns, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut before = 0;
    thread::scope(|scope| {
        let crowd = Crowd::gather(server.port(), Random::new(seed ^ 1), &turns, &stop);
        scope.spawn(|| crowd.go_on());
        let _stop = Stop(&stop);
        let mut joint = Joint::new(&server);
        for _ in 0..ROUNDS {
            let next = turns.load(Ordering::Relaxed) + random.below(2 * CLIENTS as u64);
            wait_until("the others go on", || turns.load(Ordering::Relaxed) >= next);
            before += joint.wait_once().iter().sum::<usize>();
        }
    });
    println!("{before} stood before it in {ROUNDS} rounds, {turns:?} grants to the others");
    assert!(before > ROUNDS * LOCKS, "{before}: there was nobody to wait for");
    assert_eq!(list(run(&mut server.connection(), "RWLOCK.QUEUES")), []);
    assert_info_at_rest(&server);
}
