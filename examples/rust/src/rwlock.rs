//! Read/write locks of a Redis or Valkey server with the rwlock module, for redis-rs.
//!
//! ```no_run
//! # use rwlock_example::rwlock::{Error, Locks, Options};
//! # use std::time::Duration;
//! # fn main() -> Result<(), Error> {
//! let locks = Locks::new("nightly-report", ["redis://127.0.0.1:6379"])?; // one for the process
//! let me = locks.owner(); // one for each thread that locks
//! let lock = me.write("orders", Options::within(Duration::from_secs(5)))?;
//! // ... what the lock protects ...
//! lock.unlock()?; // or drop it
//! # Ok(())
//! # }
//! ```
//!
//! A lock that was given back is gone: the compiler refuses to give it back again.
//!
//! ```compile_fail,E0382
//! # use rwlock_example::rwlock::{Error, Lock};
//! // row 13
//! fn twice(lock: Lock) -> Result<(), Error> {
//!     lock.unlock()?;
//!     lock.unlock()
//! }
//! ```
#![allow(dead_code)] // a file to copy: not everybody uses all of it

mod hold;
mod lock;
mod servers;

pub use lock::Lock;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use redis::{IntoConnectionInfo, RedisError};

use hold::{Hold, Keeper};
use servers::Servers;

#[derive(Debug)]
pub enum Error {
    /// The lock was not granted in time.
    TimedOut {
        lock: String,
        /// In how many ms its lease ends, unless it is renewed. 0: others are ahead in its queue.
        /// -1: it has no expiry. None: no server was ready, and `why` is the last error.
        held_ms: Option<i64>,
        why: Option<RedisError>,
    },
    /// The hold ended before it was given back: somebody else may have worked meanwhile.
    NotHeld(String),
    /// Waiting would never end. Give back what you hold, and begin again.
    Deadlock(String),
    /// The server has not loaded the module, or one that is too old for the command.
    NotLoaded(String),
    /// The call does not fit what the owner holds.
    Misuse(String),
    /// Any other error of the server or of the connection.
    Redis(RedisError),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::TimedOut { lock, held_ms, why } => {
                write!(f, "{lock}: not granted in time: ")?;
                match (held_ms, why) {
                    (Some(..0), _) => write!(f, "it is held without expiry"),
                    (Some(0), _) => write!(f, "others are ahead in its queue"),
                    (Some(ms), _) => {
                        write!(f, "its lease ends in {ms} ms, unless it is renewed")
                    }
                    (None, Some(why)) => write!(f, "no server was ready: {why}"),
                    (None, None) => write!(f, "no server was ready"),
                }
            }
            Error::NotHeld(why) => write!(f, "the hold was lost: {why}"),
            Error::Deadlock(why) => write!(f, "deadlock: {why}"),
            Error::NotLoaded(command) => write!(
                f,
                "the rwlock module is not loaded, or is too old for {command}"
            ),
            Error::Misuse(why) => f.write_str(why),
            Error::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Error::Redis(error)
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Try once.
    No,
    AtMost(Duration),
    Forever,
}

/// What an acquisition asks for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub wait: Wait,
    /// How long a hold outlives what keeps it alive.
    pub lease: Duration,
    /// true: the hold ends with its connection, and the server renews it until then. false: a
    /// thread renews its lease, and it survives a failover.
    pub session: bool,
    /// Hand out a fencing token for each write lock.
    pub fence: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            wait: Wait::No,
            lease: Duration::from_secs(30),
            session: true,
            fence: false,
        }
    }
}

impl Options {
    pub fn within(wait: Duration) -> Self {
        Options {
            wait: Wait::AtMost(wait),
            ..Options::default()
        }
    }
}

/// The locks of a server or of a cluster: one for the whole process. Everything ends when this and
/// all owners are dropped.
pub struct Locks {
    shared: Arc<Shared>,
}

struct Shared {
    process: String,
    owners: AtomicU64,
    servers: Arc<Servers>,
    keeper: Keeper,
}

impl Locks {
    /// `name` of this program: the server shows it beside holds, waits and connections. Empty: the
    /// name of its file. `urls`: the server's; of several, those that a failover may make the
    /// primary, or some nodes of a cluster.
    pub fn new<T: IntoConnectionInfo>(
        name: &str,
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, Error> {
        let seeds: Result<Vec<_>, _> = urls.into_iter().map(T::into_connection_info).collect();
        let seeds = seeds?;
        if seeds.is_empty() {
            return Err(Error::Misuse("no address was given".to_owned()));
        }
        let file = std::env::current_exe().unwrap_or_default();
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        let name = printable(if name.is_empty() { &file } else { name }, 100);
        let host = printable(&host_name(), 50);
        let client = format!("{name}@{host}:{}", std::process::id());
        // Each RandomState has random keys: enough for a name that nobody else has.
        let random = RandomState::new().hash_one(&client);
        Ok(Locks {
            shared: Arc::new(Shared {
                process: format!("{client}:{random:016x}"),
                owners: AtomicU64::new(0),
                servers: Arc::new(Servers::new(client, seeds)),
                keeper: Keeper::new(),
            }),
        })
    }

    /// A new owner. It may be moved to another thread.
    pub fn owner(&self) -> Owner {
        let number = self.shared.owners.fetch_add(1, Ordering::Relaxed);
        Owner {
            id: format!("{}:{number}", self.shared.process),
            shared: Arc::clone(&self.shared),
            grips: RefCell::default(),
        }
    }
}

/// The holder of locks, for one thread at a time. It may enter a lock again that it has. Deadlocks
/// are found by owner.
pub struct Owner {
    id: String,
    shared: Arc<Shared>,
    grips: RefCell<HashMap<String, Grip>>,
}

/// A lock that an owner has, and how often it entered it.
struct Grip {
    hold: Arc<Hold>,
    readers: u32,
    writers: u32,
    token: Option<i64>,
}

impl Owner {
    /// Takes the lock for reading, beside other readers.
    pub fn read(&self, lock: &str, options: Options) -> Result<Lock<'_>, Error> {
        self.all(&[lock], &[], options)
    }

    /// Takes the lock for writing, alone.
    pub fn write(&self, lock: &str, options: Options) -> Result<Lock<'_>, Error> {
        self.all(&[], &[lock], options)
    }

    /// Takes all these locks in one step, or none. In a cluster they have to be in one slot.
    pub fn all(
        &self,
        reads: &[&str],
        writes: &[&str],
        options: Options,
    ) -> Result<Lock<'_>, Error> {
        if reads.is_empty() && writes.is_empty() {
            return Err(Error::Misuse("no lock was named".to_owned()));
        }
        let mut named = HashSet::new();
        if let Some(lock) = reads
            .iter()
            .chain(writes)
            .find(|lock| !named.insert(**lock))
        {
            return Err(Error::Misuse(format!("lock {lock} is named twice")));
        }
        let mut missing = (Vec::new(), Vec::new());
        for lock in reads {
            if !self.may_enter(lock, false, &options)? {
                missing.0.push((*lock).to_owned());
            }
        }
        for lock in writes {
            if !self.may_enter(lock, true, &options)? {
                missing.1.push((*lock).to_owned());
            }
        }
        let (missing_reads, missing_writes) = missing;
        if missing_reads.len() + missing_writes.len() > 0 {
            let (hold, tokens) = Hold::acquire(
                &self.shared.servers,
                &self.id,
                &missing_reads,
                &missing_writes,
                &options,
            )?;
            self.shared.keeper.keep(&hold);
            let mut tokens = tokens.into_iter();
            let mut grips = self.grips.borrow_mut();
            for (locks, write) in [(missing_reads, false), (missing_writes, true)] {
                for lock in locks {
                    let grip = Grip {
                        hold: Arc::clone(&hold),
                        readers: 0,
                        writers: 0,
                        token: if write { tokens.next() } else { None },
                    };
                    grips.insert(lock, grip);
                }
            }
        }
        let mut grips = self.grips.borrow_mut();
        for lock in reads {
            grips
                .entry((*lock).to_owned())
                .and_modify(|grip| grip.readers += 1);
        }
        for lock in writes {
            grips
                .entry((*lock).to_owned())
                .and_modify(|grip| grip.writers += 1);
        }
        Ok(Lock {
            owner: self,
            number: self.shared.owners.fetch_add(1, Ordering::Relaxed),
            reads: reads.iter().map(|lock| (*lock).to_owned()).collect(),
            writes: writes.iter().map(|lock| (*lock).to_owned()).collect(),
            open: true,
        })
    }

    /// Whether this owner has the lock already.
    fn may_enter(&self, lock: &str, write: bool, options: &Options) -> Result<bool, Error> {
        let grips = self.grips.borrow();
        let Some(grip) = grips.get(lock) else {
            return Ok(false);
        };
        if grip.hold.is_known_lost() {
            return Err(Error::NotHeld(format!(
                "{lock}: give the lost hold back first"
            )));
        }
        if write && grip.writers == 0 {
            return Err(Error::Deadlock(format!(
                "{lock}: this owner reads it. Use upgrade() of that hold"
            )));
        }
        if write && options.fence && grip.token.is_none() {
            return Err(Error::Misuse(format!(
                "{lock}: this owner took it without a fencing token"
            )));
        }
        Ok(true)
    }
}

/// The server accepts no other characters in the name of a connection.
fn printable(name: &str, length: usize) -> String {
    name.chars()
        .take(length)
        .map(|c| if c.is_ascii_graphic() { c } else { '-' })
        .collect()
}

fn host_name() -> String {
    std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
