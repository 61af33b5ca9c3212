//! What clients count for themselves.

use std::ops::AddAssign;

use support::{wait_until, Server};

/// The figures that INFO has as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub acquired: u64,
    pub refused: u64,
    pub timeouts: u64,
    pub released: u64,
    pub lapsed: u64,
    pub deadlocks: u64,
    pub disconnect_releases: u64,
}

/// Those of requests that waited, where a client can know that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub waited: u64,
    pub granted: u64,
}

/// All of them, and what else a client knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub tally: Tally,
    pub waits: Waits,
    /// Commands of the module that were answered.
    pub commands: u64,
    /// Requests with BLOCK that were granted, be it at once or later.
    pub blocks_granted: u64,
    /// Commands that were not answered before the connection was closed.
    pub unanswered: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts { tally, waits, commands, blocks_granted, unanswered } = other;
        self.tally.acquired += tally.acquired;
        self.tally.refused += tally.refused;
        self.tally.timeouts += tally.timeouts;
        self.tally.released += tally.released;
        self.tally.lapsed += tally.lapsed;
        self.tally.deadlocks += tally.deadlocks;
        self.tally.disconnect_releases += tally.disconnect_releases;
        self.waits.waited += waits.waited;
        self.waits.granted += waits.granted;
        self.commands += commands;
        self.blocks_granted += blocks_granted;
        self.unanswered += unanswered;
    }
}

/// A figure of INFO.
#[track_caller]
pub fn figure(server: &Server, name: &str) -> u64 {
    let section = server.info("rwlock");
    let field = section.get(&format!("rwlock_{name}"));
    let value = field.unwrap_or_else(|| panic!("no {name} in {section:?}"));
    value.parse().unwrap_or_else(|error| panic!("{name} {value:?}: {error}"))
}

/// What INFO says.
#[track_caller]
pub fn told(server: &Server) -> (Tally, Waits) {
    let figure = |name| figure(server, name);
    let tally = Tally {
        acquired: figure("acquired"),
        refused: figure("refused"),
        timeouts: figure("timeouts"),
        released: figure("released"),
        lapsed: figure("lapsed"),
        deadlocks: figure("deadlocks"),
        disconnect_releases: figure("disconnect_releases"),
    };
    (tally, Waits { waited: figure("waited"), granted: figure("granted_after_waiting") })
}

/// Nobody waits, nothing is bound to a connection, and all keys have been seen.
#[track_caller]
pub fn assert_at_rest(server: &Server) {
    for name in ["waiters", "queues", "session_holds"] {
        assert_eq!(figure(server, name), 0, "{name}");
    }
    wait_until("all keys have been seen", || server.info("rwlock")["rwlock_sweep"] == "done");
}
