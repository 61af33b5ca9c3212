//! A client that takes and gives back locks, and follows them through the cluster.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{cmd, Connection, Value};

use super::history::Grant;
use super::{LOCKS, LONGEST_LEASE};
use support::{error_text, Random};

/// Longer than any node stalls: a reply that takes so long beyond the time of its BLOCK will
/// never come.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happened beside grants.
#[derive(Default)]
pub struct Tally {
    /// Integers and errors in the place of a grant.
    pub refused: u64,
    /// MOVED and ASK.
    pub moved: u64,
    /// TRYAGAIN, CLUSTERDOWN and their like.
    pub again: u64,
    /// Connections that were lost with a request.
    pub broken: u64,
    /// Requests that were never answered.
    pub unanswered: Vec<String>,
    /// Holds that a replica had, and that were gone before their time.
    pub lost: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.refused += other.refused;
        self.moved += other.moved;
        self.again += other.again;
        self.broken += other.broken;
        self.unanswered.extend(other.unanswered.iter().cloned());
        self.lost.extend(other.lost.iter().cloned());
    }
}

pub struct Client {
    number: u64,
    random: Random,
    ports: Vec<u16>,
    connections: HashMap<u16, Connection>,
    /// Where each lock was last.
    homes: HashMap<usize, u16>,
    tally: Tally,
    grants: Vec<Grant>,
}

/// What came of a request.
enum Outcome {
    Reply {
        reply: Value,
        sent: Instant,
        port: u16,
    },
    /// An error that every other node would give too.
    Refused(String),
    /// Nobody knows whether it was carried out.
    Unknown,
}

impl Client {
    pub fn new(number: u64, seed: u64, ports: Vec<u16>) -> Self {
        let random =
            Random::new(seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let (connections, homes) = (HashMap::new(), HashMap::new());
        Self { number, random, ports, connections, homes, tally: Tally::default(), grants: vec![] }
    }

    /// Works until it is told to stop.
    pub fn work(mut self, stop: &AtomicBool) -> (Vec<Grant>, Tally) {
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.hold_once(round);
        }
        (self.grants, self.tally)
    }

    fn hold_once(&mut self, round: u64) {
        let lock = self.random.below_len(LOCKS.len());
        // An owner of its own for each: no hold is re-entrant, whatever became of the last.
        let owner = format!("{}-{round}", self.number);
        let writes = self.random.chance(60);
        let lease = self.random.between(500, LONGEST_LEASE);
        let block = self.random.between(1, 1_500);
        let session = self.random.chance(25);
        let mut words: Vec<String> = vec![
            if writes { "RWLOCK.WLOCK" } else { "RWLOCK.RLOCK" }.to_owned(),
            LOCKS[lock].to_owned(),
            owner.clone(),
            lease.to_string(),
        ];
        if self.random.chance(80) {
            words.extend(["BLOCK".to_owned(), block.to_string()]);
        }
        if writes {
            words.push("FENCE".to_owned());
        }
        if session {
            words.push("SESSION".to_owned());
        }
        let Outcome::Reply { reply, sent, port } = self.request(lock, &words) else {
            return;
        };
        let token = match reply {
            Value::Okay => None,
            Value::Array(parts) => match parts[..] {
                [Value::Okay, Value::Int(token)] => Some(token),
                _ => panic!("{words:?}: {parts:?}"),
            },
            Value::Int(_) => {
                self.tally.refused += 1;
                return;
            }
            other => panic!("{words:?}: {other:?}"),
        };
        let received = Instant::now();
        let mut grant = Grant {
            lock,
            owner: owner.clone(),
            writes,
            sent,
            received,
            replicated: self.replicated(port),
            given_back: None,
            lapsed: sent + Duration::from_millis(lease),
            token,
        };
        thread::sleep(Duration::from_millis(self.random.below(60)));
        if self.random.chance(15) {
            // Lapses, or as long as the session.
            if session {
                thread::sleep(Duration::from_millis(self.random.below(500)));
                grant.given_back = Some(Instant::now());
                self.connections.remove(&port);
            }
        } else {
            grant.given_back = Some(Instant::now());
            self.give_back(&grant, session);
        }
        self.grants.push(grant);
    }

    /// When a replica is known to have what was written on this connection.
    fn replicated(&mut self, port: u16) -> Option<Instant> {
        let con = self.connections.get_mut(&port)?;
        match cmd("WAIT").arg(1).arg(300).query::<i64>(con) {
            Ok(1..) => Some(Instant::now()),
            Ok(_) => None,
            Err(_) => {
                self.tally.broken += 1;
                self.connections.remove(&port);
                None
            }
        }
    }

    fn give_back(&mut self, grant: &Grant, session: bool) {
        let words: Vec<String> =
            ["RWLOCK.UNLOCK", LOCKS[grant.lock], &grant.owner].map(str::to_owned).into();
        let broken = self.tally.broken;
        match self.request(grant.lock, &words) {
            Outcome::Refused(error) if error.starts_with("NOTHELD") => {
                // It may have been carried out by a request whose reply was lost, or the
                // session's connection with it.
                let in_time = Instant::now() + Duration::from_millis(5) < grant.lapsed;
                if grant.is_safe() && in_time && !session && broken == self.tally.broken {
                    self.tally.lost.push(format!("lost: {grant:?}"));
                }
            }
            Outcome::Refused(error) => panic!("{words:?}: {error}"),
            Outcome::Reply { .. } | Outcome::Unknown => {}
        }
    }

    /// Sends a request where it belongs, until there is an answer that counts.
    fn request(&mut self, lock: usize, words: &[String]) -> Outcome {
        let started = Instant::now();
        let mut asking = None;
        while started.elapsed() < Duration::from_secs(6) {
            let home = self.homes.get(&lock).copied();
            let port =
                asking.or(home).unwrap_or(self.ports[self.random.below_len(self.ports.len())]);
            let Some(con) = self.connection(port) else {
                self.homes.remove(&lock);
                asking = None;
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let sent = Instant::now();
            let reply = if asking.take().is_some() {
                cmd("ASKING").query::<()>(con).and_then(|()| query(con, words))
            } else {
                query(con, words)
            };
            let error = match reply {
                Ok(reply) => {
                    self.homes.insert(lock, port);
                    return Outcome::Reply { reply, sent, port };
                }
                Err(error) => error,
            };
            if error.is_timeout() {
                self.tally.unanswered.push(format!("{words:?} at {port}: {error}"));
            }
            if error.is_io_error() || error.is_connection_dropped() {
                self.tally.broken += 1;
                self.connections.remove(&port);
                self.homes.remove(&lock);
                return Outcome::Unknown;
            }
            let text = error_text(&error);
            let mut parts = text.split(' ');
            match parts.next().unwrap_or_default() {
                kind @ ("MOVED" | "ASK") => {
                    self.tally.moved += 1;
                    let to = text.rsplit(':').next().and_then(|port| port.parse().ok());
                    let to: u16 = to.unwrap_or_else(|| panic!("{text}"));
                    match kind {
                        "ASK" => asking = Some(to),
                        _ => drop(self.homes.insert(lock, to)),
                    }
                    if to == port {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
                "TRYAGAIN" | "CLUSTERDOWN" | "UNBLOCKED" | "LOADING" | "READONLY"
                | "MASTERDOWN" => {
                    self.tally.again += 1;
                    self.homes.remove(&lock);
                    thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    self.tally.refused += 1;
                    return Outcome::Refused(text);
                }
            }
        }
        Outcome::Unknown
    }

    fn connection(&mut self, port: u16) -> Option<&mut Connection> {
        match self.connections.entry(port) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => {
                let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).ok()?;
                let con = client.get_connection_with_timeout(Duration::from_millis(500)).ok()?;
                con.set_read_timeout(Some(PATIENCE)).ok()?;
                con.set_write_timeout(Some(PATIENCE)).ok()?;
                Some(entry.insert(con))
            }
        }
    }
}

fn query(con: &mut Connection, words: &[String]) -> redis::RedisResult<Value> {
    cmd(&words[0]).arg(&words[1..]).query(con)
}
