//! Takes locks for a while and checks, with plain keys, that nobody else has them.

use std::env::{args, var};
use std::error::Error as AnyError;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::{Client, Commands, ConnectionLike};
use rwlock_example::rwlock::{Error, Locks, Options};

struct Witness<C> {
    name: String,
    redis: C,
    violations: u32,
}

fn main() -> Result<ExitCode, Box<dyn AnyError>> {
    let url = var("RWLOCK_URL")?;
    if var("RWLOCK_CLUSTER").is_ok_and(|cluster| cluster == "1") {
        run(&url, ClusterClient::new([url.as_str()])?.get_connection()?)
    } else {
        run(&url, Client::open(url.as_str())?.get_connection()?)
    }
}

fn run<C: ConnectionLike>(url: &str, redis: C) -> Result<ExitCode, Box<dyn AnyError>> {
    let name = args().nth(1).unwrap_or_else(|| "redis-rs".to_owned());
    let keys = var("RWLOCK_LOCKS")?;
    let keys: Vec<&str> = keys.split_whitespace().collect();
    let seconds = var("RWLOCK_SECONDS")
        .ok()
        .map_or(Ok(10), |seconds| seconds.parse())?;

    let locks = Locks::new(&name, [url])?;
    let me = locks.owner();
    let mut witness = Witness {
        name,
        redis,
        violations: 0,
    };
    let (mut reads, mut writes, mut timeouts) = (0, 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let key = keys[random(keys.len())];
        let options = Options {
            session: random(2) == 0,
            fence: true,
            ..Options::within(Duration::from_secs(5))
        };
        let write = random(3) == 0;
        let lock = match if write {
            me.write(key, options)
        } else {
            me.read(key, options)
        } {
            Err(Error::TimedOut { .. }) => {
                timeouts += 1;
                continue;
            }
            lock => lock?,
        };
        if write {
            witness.write(key, lock.token())?;
            writes += 1;
        } else {
            witness.read(key)?;
            reads += 1;
        }
        if let Err(error) = lock.unlock() {
            witness.violation(key, error);
        }
    }
    println!(
        r#"{{"name": "{}", "library": "redis-rs", "reads": {reads}, "writes": {writes}, "timeouts": {timeouts}, "violations": {}}}"#,
        witness.name, witness.violations
    );
    Ok(if witness.violations == 0 && reads + writes > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl<C: ConnectionLike> Witness<C> {
    fn write(&mut self, key: &str, token: i64) -> Result<(), Box<dyn AnyError>> {
        let [w, r, t] = ["w", "r", "token"].map(|what| format!("{{{key}}}:witness:{what}"));
        if !self.redis.set_nx::<_, _, bool>(&w, &self.name)? {
            self.violation(key, "another writer");
        }
        let readers: Option<i64> = self.redis.get(&r)?;
        if readers.is_some_and(|readers| readers != 0) {
            self.violation(key, "readers beside a writer");
        }
        let last: Option<i64> = self.redis.get(&t)?;
        if last.is_some_and(|last| token <= last) {
            self.violation(key, "a token that does not grow");
        }
        self.redis.set::<_, _, ()>(&t, token)?;
        work();
        Ok(self.redis.del(&w)?)
    }

    fn read(&mut self, key: &str) -> Result<(), Box<dyn AnyError>> {
        let [w, r] = ["w", "r"].map(|what| format!("{{{key}}}:witness:{what}"));
        self.redis.incr::<_, _, ()>(&r, 1)?;
        let writer: Option<String> = self.redis.get(&w)?;
        if writer.is_some() {
            self.violation(key, "a writer beside a reader");
        }
        work();
        Ok(self.redis.decr(&r, 1)?)
    }

    fn violation(&mut self, key: &str, what: impl Display) {
        self.violations += 1;
        eprintln!("{}: {key}: {what}", self.name);
    }
}

fn work() {
    // So that others have time to break in.
    thread::sleep(Duration::from_micros(random(3001) as u64));
}

/// Below `limit`. Each RandomState has keys of its own.
fn random(limit: usize) -> usize {
    (RandomState::new().hash_one(0) % limit as u64) as usize
}
