//! The connections: which server has a lock, and what its errors mean.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, RedisError, Value};

use super::{Error, Wait};

/// What an answer may take beyond the time to wait.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// What an answer may take where nothing is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries on a server that is not ready.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// A connection that one hold or one wait uses at a time.
pub(super) struct Link {
    address: ConnectionAddr,
    connection: Connection,
    /// Whether it was idle before: the server may have closed it since.
    reused: bool,
}

impl Link {
    /// Whether the server keeps the connection open. Sends nothing. Takes some ms.
    pub(super) fn is_open(&mut self) -> bool {
        let mut reader = self.connection.as_pubsub();
        let read = reader.set_read_timeout(Some(Duration::from_millis(1)));
        let read = read.and_then(|()| reader.get_message());
        // To drop it would send UNSUBSCRIBE.
        std::mem::forget(reader);
        read.is_err_and(|error| error.is_timeout())
    }
}

pub(super) enum Failure {
    /// Ask again.
    Passing {
        error: RedisError,
        /// The server is gone, or is not the one to ask: a session on it has ended.
        gone: bool,
        /// There is nothing to wait for: another connection or another node will do.
        at_once: bool,
    },
    Error(Error),
}

pub(super) struct Servers {
    client: String,
    seeds: Vec<ConnectionInfo>,
    /// Whether a server was ever connected. If not, the address may be wrong.
    reached: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seed: usize,
    slots: HashMap<u16, ConnectionAddr>,
    idle: Vec<Link>,
}

impl Servers {
    pub(super) fn new(client: String, seeds: Vec<ConnectionInfo>) -> Self {
        Servers {
            client,
            seeds,
            reached: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Asks until the locks are granted or the time is up. A link that is there is a session's: no
    /// other will do. Leaves the link that was used, and returns the tokens.
    pub(super) fn request(
        &self,
        link: &mut Option<Link>,
        locks: &[String],
        wait: Wait,
        words: &[&str],
    ) -> Result<Vec<i64>, Error> {
        let bound = link.is_some();
        let granted = self.ask(link, locks, &Deadline::new(wait, bound), words);
        if granted.is_err() && !bound {
            self.give_back(link.take());
        }
        granted
    }

    fn ask(
        &self,
        link: &mut Option<Link>,
        locks: &[String],
        deadline: &Deadline,
        words: &[&str],
    ) -> Result<Vec<i64>, Error> {
        let bound = link.is_some();
        let (mut failed, mut hurried) = (0, 0);
        loop {
            let (error, gone, at_once) = match self.ask_once(link, &locks[0], deadline, words) {
                Ok(Value::Int(held_ms)) => return Err(timed_out(locks, Some(held_ms), None)),
                Ok(Value::Array(parts)) => {
                    return Ok(parts.iter().skip(1).filter_map(integer).collect());
                }
                Ok(_) => return Ok(Vec::new()),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Passing {
                    error,
                    gone,
                    at_once,
                }) => (error, gone, at_once),
            };
            if gone && bound {
                let locks = locks.join(", ");
                return Err(Error::NotHeld(format!("{locks}: the connection broke")));
            } else if deadline.is_over() {
                return Err(timed_out(locks, None, Some(error)));
            } else if at_once && hurried < 5 {
                hurried += 1;
            } else if deadline.once || !self.reached.load(Ordering::Relaxed) {
                // Each address once. One that never answered may be wrong: no time is spent on it.
                failed += 1;
                if failed >= self.seeds.len() {
                    let refused = !error.is_io_error();
                    return Err(if refused {
                        timed_out(locks, None, Some(error))
                    } else {
                        error.into()
                    });
                }
            } else {
                thread::sleep(PAUSE); // until the server may be ready
            }
        }
    }

    fn ask_once(
        &self,
        link: &mut Option<Link>,
        key: &str,
        deadline: &Deadline,
        words: &[&str],
    ) -> Result<Value, Failure> {
        if link.is_none() {
            *link = Some(self.link(key, deadline.limit().unwrap_or(PATIENCE))?);
        }
        // A request that is sent again after a lost reply counts once.
        let mut words = [words, &["ONCE"]].concat();
        let block = deadline.block().to_string();
        if !deadline.once {
            words.extend(["BLOCK", &block]);
        }
        self.call(link, key, deadline.limit(), &words)
    }

    /// Sends a command, and waits so long for the answer. None: without end. Takes the link away
    /// when its server is gone.
    pub(super) fn call(
        &self,
        link: &mut Option<Link>,
        key: &str,
        limit: Option<Duration>,
        words: &[&str],
    ) -> Result<Value, Failure> {
        let used = match link {
            Some(link) => link,
            None => link.insert(self.link(key, limit.unwrap_or(PATIENCE))?),
        };
        let mut command = redis::Cmd::new();
        command.arg(words);
        let ready = used.connection.set_read_timeout(limit);
        let error = match ready.and_then(|()| command.query(&mut used.connection)) {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let detail = error.detail().unwrap_or_default().to_owned();
        let failure = match error.code() {
            Some("NOTHELD") => Failure::Error(Error::NotHeld(detail)),
            Some("DEADLOCK") => Failure::Error(Error::Deadlock(detail)),
            Some("MOVED") => self.moved(error),
            Some("UNBLOCKED" | "TRYAGAIN" | "ASK" | "CLUSTERDOWN") => Failure::Passing {
                error,
                gone: false,
                at_once: false,
            },
            Some("READONLY" | "LOADING" | "MASTERDOWN") => {
                self.look_elsewhere(&used.address, key, error, false)
            }
            None if error.is_io_error() => {
                let stale = used.reused && error.is_connection_dropped();
                self.look_elsewhere(&used.address, key, error, stale)
            }
            _ if error.to_string().contains("unknown command") => {
                Failure::Error(Error::NotLoaded(words[0].to_owned()))
            }
            _ => Failure::Error(error.into()),
        };
        if matches!(failure, Failure::Passing { gone: true, .. }) {
            *link = None;
        }
        Err(failure)
    }

    /// A connection to the server that has the key.
    fn link(&self, key: &str, limit: Duration) -> Result<Link, Failure> {
        let start = Instant::now();
        let mut state = self.state();
        let info = &self.seeds[state.seed];
        let address = state.slots.get(&slot(key)).unwrap_or(info.addr()).clone();
        if let Some(at) = state.idle.iter().position(|link| link.address == address) {
            return Ok(state.idle.swap_remove(at));
        }
        drop(state);
        // So that a server which is gone is noticed within half a minute.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(5));
        let settings = info.tcp_settings().clone().set_keepalive(keepalive);
        // The library's own name would cost two answers more.
        let login = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info
            .clone()
            .set_addr(address.clone())
            .set_tcp_settings(settings)
            .set_redis_settings(login);
        let connected = Client::open(info).and_then(|client| {
            // It takes this time for each step: to connect, to log in, to select the database.
            let mut connection = client.get_connection_with_timeout(limit / 3)?;
            self.reached.store(true, Ordering::Relaxed);
            let left = limit.saturating_sub(start.elapsed());
            connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut name = redis::cmd("CLIENT");
            match name.arg("SETNAME").arg(&self.client).exec(&mut connection) {
                Err(error) if error.is_io_error() => Err(error),
                // Else the user may not name its connections. The locks work without.
                _ => Ok(connection),
            }
        });
        match connected {
            Ok(connection) => Ok(Link {
                address,
                connection,
                reused: false,
            }),
            Err(error) if error.is_io_error() => {
                Err(self.look_elsewhere(&address, key, error, false))
            }
            Err(error) => Err(Failure::Error(error.into())),
        }
    }

    pub(super) fn give_back(&self, link: Option<Link>) {
        self.state().idle.extend(link.map(|link| Link {
            reused: true,
            ..link
        }));
    }

    fn moved(&self, error: RedisError) -> Failure {
        if let Some((node, slot)) = error.redirect_node() {
            if let Some((host, port)) = node.rsplit_once(':') {
                let address =
                    ConnectionAddr::Tcp(host.to_owned(), port.parse().unwrap_or_default());
                self.state().slots.insert(slot, address);
            }
        }
        Failure::Passing {
            error,
            gone: true,
            at_once: true,
        }
    }

    /// Later requests ask the next address.
    fn look_elsewhere(
        &self,
        address: &ConnectionAddr,
        key: &str,
        error: RedisError,
        at_once: bool,
    ) -> Failure {
        let mut state = self.state();
        state.idle.retain(|link| link.address != *address);
        if state.slots.get(&slot(key)) == Some(address) {
            state.slots.remove(&slot(key));
        }
        if self.seeds[state.seed].addr() == address {
            state.seed = (state.seed + 1) % self.seeds.len();
        }
        Failure::Passing {
            error,
            gone: true,
            at_once,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a caller waits.
struct Deadline {
    wait: Wait,
    once: bool,
    start: Instant,
    /// What an answer may take beyond the wait.
    patience: Duration,
}

impl Deadline {
    fn new(wait: Wait, bound: bool) -> Self {
        let once = matches!(wait, Wait::No | Wait::AtMost(Duration::ZERO));
        Deadline {
            wait,
            once,
            start: Instant::now(),
            // To hang up on a session would lose what it has.
            patience: if bound || once { PATIENCE } else { GRACE },
        }
    }

    /// What is left of the wait and of so much more.
    fn left(&self, more: Duration) -> Duration {
        let wait = match self.wait {
            Wait::AtMost(wait) => wait,
            Wait::No | Wait::Forever => Duration::ZERO,
        };
        (wait.saturating_add(more)).saturating_sub(self.start.elapsed())
    }

    fn is_over(&self) -> bool {
        !self.once && self.wait != Wait::Forever && self.left(Duration::ZERO).is_zero()
    }

    /// How long to wait for an answer. None: without end.
    fn limit(&self) -> Option<Duration> {
        let left = self.left(self.patience).max(Duration::from_millis(1));
        (self.wait != Wait::Forever).then_some(left)
    }

    /// For BLOCK, in ms. 0: without end.
    fn block(&self) -> u128 {
        match self.wait {
            Wait::Forever => 0,
            _ => self.left(Duration::ZERO).as_millis().max(1),
        }
    }
}

fn timed_out(locks: &[String], held_ms: Option<i64>, why: Option<RedisError>) -> Error {
    Error::TimedOut {
        lock: locks.join(", "),
        held_ms,
        why,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// The slot of a key in a cluster: a CRC16 of what is between the first braces, if there is.
fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    let crc = tag.unwrap_or(key).bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16384
}
