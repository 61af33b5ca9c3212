//! What the server knows of: the locks that an owner took in one step, and the thread that keeps
//! them.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Value;

use super::servers::{Failure, Link, Servers, GRACE, PATIENCE, PAUSE};
use super::{Error, Options};

/// Between two looks at the connection of a session.
const WATCH: Duration = Duration::from_millis(250);

type Callback = Box<dyn Fn() + Send>;

pub(super) struct Hold {
    servers: Arc<Servers>,
    owner: String,
    pub(super) locks: Vec<String>,
    lease: Duration,
    session: bool,
    link: Mutex<Bound>,
    /// When the lease ends at the earliest.
    valid_till: Mutex<Instant>,
    lost: AtomicBool,
    callbacks: Mutex<Vec<(u64, Callback)>>,
}

/// The connection of a session, locked while it is in use.
struct Bound {
    link: Option<Link>,
    ended: bool,
}

impl Hold {
    /// Also returns the tokens of the write locks.
    pub(super) fn acquire(
        servers: &Arc<Servers>,
        owner: &str,
        reads: &[String],
        writes: &[String],
        options: &Options,
    ) -> Result<(Arc<Self>, Vec<i64>), Error> {
        let lease = options.lease.as_millis().to_string();
        let locks = [reads, writes].concat();
        let mut words: Vec<&str> = Vec::new();
        let (read_count, write_count) = (reads.len().to_string(), writes.len().to_string());
        if let [lock] = &locks[..] {
            let command = if writes.is_empty() {
                "RWLOCK.RLOCK"
            } else {
                "RWLOCK.WLOCK"
            };
            words.extend([command, lock, owner, &lease]);
        } else {
            words.extend(["RWLOCK.MLOCK", owner, &lease]);
            for (word, count, locks) in [
                ("READ", &read_count, reads),
                ("WRITE", &write_count, writes),
            ] {
                if !locks.is_empty() {
                    words.extend([word, count]);
                    words.extend(locks.iter().map(String::as_str));
                }
            }
        }
        if options.session {
            words.push("SESSION");
        }
        if options.fence && !writes.is_empty() {
            words.push("FENCE");
        }
        let mut link = None;
        let tokens = servers.request(&mut link, &locks, options.wait, &words)?;
        if !options.session {
            servers.give_back(link.take());
        }
        let hold = Hold {
            servers: Arc::clone(servers),
            owner: owner.to_owned(),
            locks,
            lease: options.lease,
            session: options.session,
            link: Mutex::new(Bound { link, ended: false }),
            valid_till: Mutex::new(Instant::now() + options.lease),
            lost: AtomicBool::new(false),
            callbacks: Mutex::default(),
        };
        Ok((Arc::new(hold), tokens))
    }

    /// Returns the token, if one was asked for.
    pub(super) fn upgrade(&self, lock: &str, options: &Options) -> Result<Option<i64>, Error> {
        let lease = self.lease_ms();
        let mut words = vec!["RWLOCK.UPGRADE", lock, &self.owner, &lease];
        if self.session {
            words.push("SESSION");
        }
        if options.fence {
            words.push("FENCE");
        }
        let asked = if self.session {
            let mut bound = locked(&self.link);
            if bound.link.is_none() {
                return Err(self.lost_error());
            }
            self.servers
                .request(&mut bound.link, &self.locks, options.wait, &words)
        } else {
            // The keeper renews the lease meanwhile.
            let mut link = None;
            let asked = self
                .servers
                .request(&mut link, &self.locks, options.wait, &words);
            self.servers.give_back(link);
            asked
        };
        if matches!(asked, Err(Error::NotHeld(_))) {
            self.lose();
        }
        Ok(asked?.first().copied())
    }

    pub(super) fn downgrade(&self, lock: &str) -> Result<(), Error> {
        let lease = self.lease_ms();
        self.send(PATIENCE, &["RWLOCK.DOWNGRADE", lock, &self.owner, &lease])
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.renew(PATIENCE)
    }

    fn renew(&self, limit: Duration) -> Result<(), Error> {
        let asked = Instant::now();
        let lease = self.lease_ms();
        let mut words = vec![self.owner.as_str(), &lease];
        if let [lock] = &self.locks[..] {
            words.splice(0..0, ["RWLOCK.RENEW", lock]);
        } else {
            words.insert(0, "RWLOCK.MRENEW");
            words.extend(self.locks.iter().map(String::as_str));
        }
        self.send(limit, &words)?;
        *locked(&self.valid_till) = asked + self.lease;
        Ok(())
    }

    /// Gives the locks back.
    pub(super) fn end(&self) -> Result<(), Error> {
        let count = self.locks.len().to_string();
        let words = match &self.locks[..] {
            [lock] => vec!["RWLOCK.UNLOCK", lock, &self.owner, "ALL"],
            locks => ["RWLOCK.MUNLOCK", &self.owner, "ALL", &count]
                .into_iter()
                .chain(locks.iter().map(String::as_str))
                .collect(),
        };
        let result = self.send(PATIENCE, &words);
        if self.session && matches!(result, Err(Error::NotHeld(_))) {
            // After a failover the new primary keeps a session's hold until its lease ends.
            let mut link = None;
            let _ = self
                .servers
                .call(&mut link, &self.locks[0], Some(GRACE), &words);
            self.servers.give_back(link);
        }
        let mut bound = locked(&self.link);
        bound.ended = true;
        self.servers.give_back(bound.link.take());
        result
    }

    pub(super) fn is_lost(&self) -> bool {
        if !self.session && *locked(&self.valid_till) <= Instant::now() {
            self.lose();
        } else if self.session && !self.lost.load(Ordering::Acquire) {
            // While it is in use its user will see for itself.
            if let Ok(mut bound) = self.link.try_lock() {
                if !bound.ended && !bound.link.as_mut().is_some_and(Link::is_open) {
                    self.lose();
                }
            }
        }
        self.lost.load(Ordering::Acquire)
    }

    /// Between two looks of the keeper.
    fn pause(&self) -> Duration {
        if self.session {
            WATCH
        } else {
            self.lease / 3
        }
    }

    /// As the keeper saw it last.
    pub(super) fn is_known_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether its owner does not send anything about it now, nor has given it back.
    fn is_idle(&self) -> bool {
        self.link.try_lock().is_ok_and(|bound| !bound.ended)
    }

    pub(super) fn lost_error(&self) -> Error {
        Error::NotHeld(self.locks.join(", "))
    }

    fn lose(&self) {
        let callbacks = locked(&self.callbacks);
        if !self.lost.swap(true, Ordering::AcqRel) {
            for (_, callback) in callbacks.iter() {
                // One that panics does not end the keeper.
                let _ = catch_unwind(AssertUnwindSafe(callback));
            }
        }
    }

    pub(super) fn on_lost(&self, number: u64, callback: Callback) {
        let mut callbacks = locked(&self.callbacks);
        if self.lost.load(Ordering::Acquire) {
            callback();
        } else {
            callbacks.push((number, callback));
        }
    }

    pub(super) fn forget(&self, number: u64) {
        locked(&self.callbacks).retain(|(other, _)| *other != number);
    }

    /// Sends what does not wait: RENEW, DOWNGRADE, UNLOCK.
    fn send(&self, limit: Duration, words: &[&str]) -> Result<(), Error> {
        let start = Instant::now();
        let renews = words[0].ends_with("RENEW");
        let mut bound = locked(&self.link);
        let mut again = false;
        loop {
            if self.lost.load(Ordering::Acquire) || (self.session && bound.link.is_none()) {
                return Err(self.lost_error());
            }
            let mut link = bound.link.take();
            let left = limit.saturating_sub(start.elapsed());
            let left = left.max(Duration::from_millis(1));
            let reply = self
                .servers
                .call(&mut link, &self.locks[0], Some(left), words);
            if self.session {
                bound.link = link;
            } else {
                self.servers.give_back(link);
            }
            let missing = Value::Int(if renews { 0 } else { -1 });
            let error = match reply {
                // MRENEW and MUNLOCK say for each lock whether it was held.
                Ok(Value::Array(each)) if each.contains(&missing) => self.lost_error(),
                Ok(_) => return Ok(()),
                Err(Failure::Error(error)) => error,
                Err(Failure::Passing { gone: true, .. }) if self.session => self.lost_error(),
                Err(Failure::Passing { error, .. }) if start.elapsed() >= limit => error.into(),
                Err(Failure::Passing { at_once, .. }) => {
                    again = true;
                    if !at_once {
                        thread::sleep(PAUSE); // until the server may be ready
                    }
                    continue;
                }
            };
            if matches!(error, Error::NotHeld(_)) {
                // The lease cannot have ended: the first request got through.
                let in_time = *locked(&self.valid_till) > Instant::now();
                if again && !renews && !self.session && in_time {
                    return Ok(());
                }
                self.lose();
            }
            return Err(error);
        }
    }

    fn lease_ms(&self) -> String {
        self.lease.as_millis().to_string()
    }
}

/// The thread that watches the connections of sessions and renews leases.
pub(super) struct Keeper {
    new: Option<Sender<(Instant, Weak<Hold>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn new() -> Self {
        let (new, added) = channel();
        let thread = thread::Builder::new().name("rwlock-keeper".to_owned());
        Keeper {
            new: Some(new),
            thread: thread.spawn(move || keep(&added)).ok(),
        }
    }

    pub(super) fn keep(&self, hold: &Arc<Hold>) {
        if let Some(new) = &self.new {
            let _ = new.send((Instant::now() + hold.pause(), Arc::downgrade(hold)));
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.new = None; // which ends the thread
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looks at each hold when its time has come.
fn keep(added: &Receiver<(Instant, Weak<Hold>)>) {
    let mut holds: Vec<(Instant, Weak<Hold>)> = Vec::new();
    loop {
        let next = holds.iter().map(|(due, _)| *due).min();
        let received = match next {
            None => added.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => added.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(new) => {
                holds.retain(|(_, hold)| hold.strong_count() > 0);
                holds.push(new);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => holds.retain_mut(|(due, hold)| {
                if *due > Instant::now() {
                    return true;
                }
                let Some(hold) = hold.upgrade() else {
                    return false;
                };
                if !hold.session && hold.is_idle() {
                    // After an error that is no loss there may be time to try again.
                    let limit = hold.pause().clamp(Duration::from_millis(100), PATIENCE);
                    let _ = hold.renew(limit);
                }
                *due = Instant::now() + hold.pause();
                !hold.is_lost()
            }),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
