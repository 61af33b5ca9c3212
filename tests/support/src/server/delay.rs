//! How long the kernel kept a test and its servers waiting for a processor.
//!
//! A test of promptness measures the machine as well. On a busy one it would fail whatever
//! the module does. So it allows for what the kernel says that the machine took: next to
//! nothing on an idle one.

use std::cell::RefCell;
use std::fs;
use std::time::Duration;

thread_local! {
    /// The processes of the servers that this thread has started.
    static SERVERS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn started(pid: u32) {
    SERVERS.with_borrow_mut(|servers| servers.push(pid));
}

/// How long, in all, this thread and the servers that it has started were ready to go on and
/// had no processor. Nothing where the kernel does not tell.
pub fn processor_wait() -> Duration {
    let servers = SERVERS.with_borrow(Clone::clone);
    servers.iter().map(u32::to_string).chain(["thread-self".to_owned()]).map(waited).sum()
}

/// A limit for each of so many rounds, on a machine as busy as it was until now.
pub fn on_this_machine(limit: Duration, rounds: usize) -> Duration {
    let rounds = u32::try_from(rounds).expect("a few rounds");
    limit + processor_wait() / rounds.max(1)
}

fn waited(task: String) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{task}/schedstat")).unwrap_or_default();
    let ns = stat.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}
