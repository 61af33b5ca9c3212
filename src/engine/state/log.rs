//! The log of what went slowly or wrong: RWLOCK.LOG.

use super::clock::Steady;
use crate::core::{Millis, OwnerId, Want};
use std::collections::VecDeque;

/// How many bytes of a key or an owner an entry keeps. SLOWLOG does the same.
const MOST_BYTES: usize = 128;

/// How many blockers an entry has at most.
pub const MOST_BLOCKERS: usize = 8;

/// How many bytes of a detail an entry keeps.
const MOST_DETAIL: usize = 1_024;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was granted after a long wait.
    Wait,
    /// A lock that was held for long became free.
    Hold,
    /// A waiter timed out, or was unblocked.
    Timeout,
    /// A request or a waiter failed because of a circle.
    Deadlock,
    /// The connection of a waiter closed after a long wait.
    Disconnect,
    /// A lease ran out.
    Lapse,
    /// A session hold was given back because its connection closed.
    Session,
    /// FORCEUNLOCK threw out the holders.
    Forced,
}

/// The first bytes of a key or an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// At most 128 bytes.
    pub bytes: Box<[u8]>,
    /// How many bytes are left out.
    pub more: usize,
}

impl Cut {
    pub fn of(bytes: &[u8]) -> Cut {
        let kept = &bytes[..bytes.len().min(MOST_BYTES)];
        Cut { bytes: kept.into(), more: bytes.len() - kept.len() }
    }
}

/// An owner that stood in the way when a wait began.
#[derive(Clone, Debug)]
pub struct Blocker {
    pub owner: OwnerId,
    /// The kind of its hold, or of what it waits for.
    pub want: Want,
    /// Whether it held the lock. False: it waited ahead in the queue.
    pub holds: bool,
}

/// The connection that an entry is about.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The id of the client; 0: there is none.
    pub id: u64,
    /// Its address as CLIENT LIST shows it; empty: it is not known.
    pub address: String,
    /// Its name by CLIENT SETNAME; empty: it has none.
    pub name: Vec<u8>,
}

/// An entry, without its number and time.
#[derive(Clone, Debug)]
pub struct Record {
    pub event: Event,
    pub db: i32,
    pub key: Cut,
    pub owner: Cut,
    /// The kind of hold; None: it is not known.
    pub want: Option<Want>,
    /// How long the request waited, in ms.
    pub waited: Millis,
    /// How long a lock that ended was held, in ms; 0: it did not end, or the time is not known.
    pub held: Millis,
    pub client: Connection,
    /// What stood in the way, holders first: owner, kind, and whether it held the lock.
    pub blockers: Vec<(Cut, Want, bool)>,
    pub detail: String,
}

/// An entry.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Entries are numbered from 0, and never twice.
    pub id: u64,
    /// When it was added, in unix ms.
    pub time: Millis,
    pub record: Record,
}

/// The deadlocks of this second that got a line in the server's log.
#[derive(Debug, Default)]
pub struct Lines {
    pub since: Option<Steady>,
    pub written: u32,
    pub left_out: u64,
}

/// The newest entries.
#[derive(Debug, Default)]
pub struct Log {
    /// The oldest first.
    entries: VecDeque<LogEntry>,
    next_id: u64,
}

impl Log {
    /// Adds an entry, and drops the oldest beyond `max`.
    pub fn add(&mut self, time: Millis, mut record: Record, max: usize) {
        while record.detail.len() > MOST_DETAIL {
            record.detail.pop();
        }
        record.detail.shrink_to_fit();
        self.shorten(max.saturating_sub(1));
        if max > 0 {
            self.entries.push_back(LogEntry { id: self.next_id, time, record });
            self.next_id += 1;
        }
    }

    /// Drops the oldest entries beyond `max`.
    pub fn shorten(&mut self, max: usize) {
        let beyond = self.entries.len().saturating_sub(max);
        self.entries.drain(..beyond);
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Drops all entries.
    pub fn reset(&mut self) {
        self.entries = VecDeque::new();
    }

    /// The entries, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], detail: &str) -> Record {
        Record {
            event: Event::Wait,
            db: 0,
            key: Cut::of(key),
            owner: Cut::of(b""),
            want: None,
            waited: 0,
            held: 0,
            client: Connection::default(),
            blockers: Vec::new(),
            detail: detail.into(),
        }
    }

    #[test]
    fn the_newest_entries_are_kept() {
        let mut log = Log::default();
        (0..5).for_each(|time| log.add(time, record(b"k", ""), 3));
        let ids = |log: &Log| log.newest().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&log), [4, 3, 2]);
        log.add(5, record(b"k", ""), 2);
        assert_eq!(ids(&log), [5, 4]);
        log.add(6, record(b"k", ""), 0);
        assert_eq!(ids(&log), []);
        log.add(7, record(b"k", ""), 2);
        log.reset();
        log.add(8, record(b"k", ""), 2);
        // Numbers are not used again.
        assert_eq!(ids(&log), [7]);
    }

    #[test]
    fn long_texts_are_cut() {
        let long = [b'x'; 1_000];
        let mut log = Log::default();
        log.add(0, record(&long, &"ä".repeat(1_000)), 1);
        let entry = log.newest().next().expect("an entry");
        assert_eq!((entry.record.key.bytes.len(), entry.record.key.more), (128, 872));
        assert_eq!(entry.record.detail.len(), 1_024);
        assert_eq!(Cut::of(&long[..128]), Cut { bytes: long[..128].into(), more: 0 });
    }
}
