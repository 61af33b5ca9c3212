//! The read/write locks of the rwlock module, with redis-rs.
//!
//! ```no_run
//! # use rwlock_example::rwlock::{Options, Owner};
//! # use std::time::Duration;
//! # fn main() -> Result<(), rwlock_example::rwlock::Error> {
//! let me = Owner::new(["redis://127.0.0.1:6379"])?; // one for each thread that locks
//! let lock = me.write("orders", Options::within(Duration::from_secs(5)))?;
//! // ... what the lock protects ...
//! lock.unlock()?; // or drop it
//! # Ok(())
//! # }
//! ```
#![allow(dead_code)] // a file to copy: not everybody uses all of it

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, Value,
};

/// What an answer may take beyond the time to wait.
const GRACE: Duration = Duration::from_secs(10);
/// Between two tries on a server that is not ready.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub enum Error {
    /// Not granted in time.
    TimedOut,
    /// The lock was lost before it was given back: somebody else may have worked meanwhile.
    NotHeld(String),
    /// Waiting would never end. Give back what you hold, and begin again.
    Deadlock(String),
    /// This owner has the lock already: hand it on.
    Reentry,
    Redis(RedisError),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::TimedOut => f.write_str("the lock was not granted in time"),
            Error::NotHeld(why) => write!(f, "the lock was lost: {why}"),
            Error::Deadlock(why) => write!(f, "deadlock: {why}"),
            Error::Reentry => f.write_str("this owner has the lock already"),
            Error::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let why = error.detail().unwrap_or_default().to_owned();
        match error.code() {
            Some("NOTHELD") => Error::NotHeld(why),
            Some("DEADLOCK") => Error::Deadlock(why),
            _ => Error::Redis(error),
        }
    }
}

/// What an acquisition asks for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to wait at most. None: for ever.
    pub wait: Option<Duration>,
    /// How long the lock outlives a crash of this process.
    pub lease: Duration,
    /// The server renews the lock, and it ends with the owner's connection.
    pub session: bool,
    /// Hand out a fencing token. For writers.
    pub fence: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wait: None,
            lease: Duration::from_secs(30),
            session: false,
            fence: false,
        }
    }
}

impl Options {
    pub fn within(wait: Duration) -> Self {
        Options {
            wait: Some(wait),
            ..Options::default()
        }
    }
}

/// Who holds locks: one thread at a time. It has connections of its own, because a command that
/// waits blocks its connection, and because a session lives as long as its connection.
pub struct Owner {
    id: String,
    nodes: RefCell<Nodes>,
    held: RefCell<HashSet<(Kind, String)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Read,
    Write,
}

impl Owner {
    /// `urls`: the server's; of several, those that a failover may make the primary, or some nodes
    /// of a cluster.
    pub fn new<T: IntoConnectionInfo>(urls: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let seeds: Result<Vec<_>, _> = urls.into_iter().map(T::into_connection_info).collect();
        let nodes = Nodes {
            seeds: seeds?,
            seed: 0,
            slots: HashMap::new(),
            open: Vec::new(),
        };
        // Each HashMap has random keys: enough for a name that nobody else has.
        use std::hash::{BuildHasher, RandomState};
        let id = format!(
            "{:016x}{:016x}",
            RandomState::new().hash_one(1),
            RandomState::new().hash_one(2)
        );
        Ok(Owner {
            id,
            nodes: RefCell::new(nodes),
            held: RefCell::default(),
        })
    }

    /// Takes the lock for reading, beside other readers.
    pub fn read(&self, key: &str, options: Options) -> Result<Lock<'_>, Error> {
        self.acquire(
            Kind::Read,
            key,
            Options {
                fence: false,
                ..options
            },
        )
    }

    /// Takes the lock for writing, alone.
    pub fn write(&self, key: &str, options: Options) -> Result<Lock<'_>, Error> {
        self.acquire(Kind::Write, key, options)
    }

    fn acquire(&self, kind: Kind, key: &str, options: Options) -> Result<Lock<'_>, Error> {
        if self.held.borrow().contains(&(kind, key.to_owned())) {
            return Err(Error::Reentry);
        }
        let start = Instant::now();
        loop {
            let left = options.wait.map(|wait| {
                wait.saturating_sub(start.elapsed())
                    .max(Duration::from_millis(1))
            });
            // ONCE: asking again after a lost answer does not count twice.
            let mut command = redis::cmd(if kind == Kind::Read {
                "RWLOCK.RLOCK"
            } else {
                "RWLOCK.WLOCK"
            });
            command
                .arg(key)
                .arg(&self.id)
                .arg(millis(options.lease))
                .arg("ONCE");
            command.arg("BLOCK").arg(left.map_or(0, millis));
            if options.session {
                command.arg("SESSION");
            }
            if options.fence {
                command.arg("FENCE");
            }
            let reply = self
                .nodes
                .borrow_mut()
                .ask(key, &command, left.map(|left| left + GRACE));
            let token = match reply {
                Ok(Value::Int(_)) => return Err(Error::TimedOut),
                Ok(Value::Array(parts)) => match parts.get(1) {
                    Some(Value::Int(token)) => *token,
                    _ => 0,
                },
                Ok(_) => 0,
                Err(error) if !passing(&error) => return Err(error.into()),
                Err(_) if options.wait.is_some_and(|wait| start.elapsed() >= wait) => {
                    return Err(Error::TimedOut);
                }
                Err(_) => {
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            self.held.borrow_mut().insert((kind, key.to_owned()));
            let valid_till = Arc::new(Mutex::new(Some(Instant::now() + options.lease)));
            let renewer = (!options.session).then(|| self.renewer(key, options.lease, &valid_till));
            let open = Cell::new(true);
            return Ok(Lock {
                owner: self,
                key: key.to_owned(),
                kind,
                options,
                token,
                valid_till,
                renewer,
                open,
            });
        }
    }

    /// Lengthens a lease every third of it, from a thread and a connection of its own: the owner's
    /// may be waiting for another lock.
    fn renewer(
        &self,
        key: &str,
        lease: Duration,
        valid_till: &Arc<Mutex<Option<Instant>>>,
    ) -> Renewer {
        let (stop, stopped) = channel();
        let (key, id, valid_till) = (key.to_owned(), self.id.clone(), Arc::clone(valid_till));
        let mut nodes = self.nodes.borrow().without_connections();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(lease / 3) == Err(RecvTimeoutError::Timeout) {
                let asked = Instant::now();
                let command = renew(&key, &id, lease);
                let reply = nodes.ask(&key, &command, Some(lease / 3));
                let mut valid_till = valid_till.lock().unwrap_or_else(PoisonError::into_inner);
                match reply {
                    Ok(_) => *valid_till = Some(asked + lease),
                    Err(error) if error.code() == Some("NOTHELD") => *valid_till = None,
                    Err(_) => {} // there is time to try again
                }
                if valid_till.is_none_or(|end| end <= Instant::now()) {
                    *valid_till = None;
                    return;
                }
            }
        });
        Renewer { stop, thread }
    }
}

struct Renewer {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// A lock that is held. Dropping it gives it back; [`Lock::unlock`] also tells whether it was lost.
#[must_use = "it is given back when it is dropped"]
pub struct Lock<'a> {
    owner: &'a Owner,
    key: String,
    kind: Kind,
    options: Options,
    token: i64,
    /// When the lease ends at the earliest. None: the lock is lost.
    valid_till: Arc<Mutex<Option<Instant>>>,
    renewer: Option<Renewer>,
    open: Cell<bool>,
}

impl Lock<'_> {
    /// The fencing token, if one was asked for.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Whether the lock is known to be lost. A session lock is not watched: ask with `check`.
    pub fn is_lost(&self) -> bool {
        self.valid_till
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// Asks the server whether the lock is still held.
    pub fn check(&self) -> Result<(), Error> {
        let command = renew(&self.key, &self.owner.id, self.options.lease);
        self.owner
            .nodes
            .borrow_mut()
            .ask(&self.key, &command, Some(GRACE))?;
        Ok(())
    }

    /// Gives the lock back. `NotHeld`: it was lost before.
    pub fn unlock(mut self) -> Result<(), Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), Error> {
        if !self.open.replace(false) {
            return Ok(());
        }
        if let Some(Renewer { stop, thread }) = self.renewer.take() {
            drop(stop);
            let _ = thread.join();
        }
        self.owner
            .held
            .borrow_mut()
            .remove(&(self.kind, self.key.clone()));
        let end = *self
            .valid_till
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let in_time = || end.is_some_and(|end| Instant::now() < end);
        let mut command = redis::cmd("RWLOCK.UNLOCK");
        let kind = if self.kind == Kind::Read {
            "READ"
        } else {
            "WRITE"
        };
        command.arg(&self.key).arg(&self.owner.id).arg(kind);
        let mut again = false;
        loop {
            let Err(error) = self
                .owner
                .nodes
                .borrow_mut()
                .ask(&self.key, &command, Some(GRACE))
            else {
                return Ok(());
            };
            // In time, so the lease cannot have lapsed: the first request got through.
            if again && in_time() && !self.options.session && error.code() == Some("NOTHELD") {
                return Ok(());
            }
            if !passing(&error) || !in_time() {
                return Err(error.into());
            }
            again = true;
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // An error cannot be returned from here: use `unlock` to see it.
        let _ = self.give_back();
    }
}

/// Connections to the server, or to the nodes of a cluster.
struct Nodes {
    seeds: Vec<ConnectionInfo>,
    seed: usize,
    slots: HashMap<u16, ConnectionAddr>,
    open: Vec<(ConnectionAddr, Connection)>,
}

impl Nodes {
    fn without_connections(&self) -> Self {
        Nodes {
            seeds: self.seeds.clone(),
            seed: self.seed,
            slots: self.slots.clone(),
            open: Vec::new(),
        }
    }

    /// Asks the node that has the key, and waits so long for the answer. None: for ever.
    fn ask(
        &mut self,
        key: &str,
        command: &redis::Cmd,
        limit: Option<Duration>,
    ) -> Result<Value, RedisError> {
        let slot = slot(key.as_bytes());
        let info = &self.seeds[self.seed];
        let address = self.slots.get(&slot).unwrap_or(info.addr()).clone();
        let reply = self.ask_at(&address, command, limit);
        let Err(error) = &reply else {
            return reply;
        };
        if let Some((node, slot)) = error.redirect_node() {
            let node = node
                .rsplit_once(':')
                .and_then(|(host, port)| Some((host, port.parse().ok()?)));
            if let Some((host, port)) = node {
                self.slots
                    .insert(slot, ConnectionAddr::Tcp(host.to_owned(), port));
            }
        } else if error.code().is_none() || error.code() == Some("READONLY") {
            // A broken connection, or not one to a primary: look elsewhere.
            self.open.retain(|(node, _)| *node != address);
            self.slots.retain(|_, node| *node != address);
            self.seed = (self.seed + 1) % self.seeds.len();
        }
        reply
    }

    fn ask_at(
        &mut self,
        address: &ConnectionAddr,
        command: &redis::Cmd,
        limit: Option<Duration>,
    ) -> Result<Value, RedisError> {
        let at = match self.open.iter().position(|(node, _)| node == address) {
            Some(at) => at,
            None => {
                let info = self.seeds[self.seed].clone().set_addr(address.clone());
                let connection = Client::open(info)?.get_connection_with_timeout(GRACE)?;
                self.open.push((address.clone(), connection));
                self.open.len() - 1
            }
        };
        let connection = &mut self.open[at].1;
        connection.set_read_timeout(limit)?;
        command.query(connection)
    }
}

fn renew(key: &str, id: &str, lease: Duration) -> redis::Cmd {
    let mut command = redis::cmd("RWLOCK.RENEW");
    command.arg(key).arg(id).arg(millis(lease));
    command
}

/// The slot of a key in a cluster: a CRC16 of what is between the first braces, if there is.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let tag = &key[open + 1..];
        let close = tag
            .iter()
            .position(|&byte| byte == b'}')
            .filter(|&close| close > 0)?;
        Some(&tag[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 }
        })
    });
    crc % 16384
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a failover, a restart or a moving slot answers: ask again.
fn passing(error: &RedisError) -> bool {
    const CODES: [&str; 7] = [
        "UNBLOCKED",
        "READONLY",
        "LOADING",
        "TRYAGAIN",
        "MOVED",
        "CLUSTERDOWN",
        "MASTERDOWN",
    ];
    error.code().is_none_or(|code| CODES.contains(&code))
        && !matches!(error.kind(), redis::ErrorKind::InvalidClientConfig)
}
