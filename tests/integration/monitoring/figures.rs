//! The figures of INFO are what clients count for themselves.

mod free;
mod rounds;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use free::Client;
use support::{call, fresh_seed, int, list, wait_until, Crowd, Server};
use tally::{assert_at_rest, figure, told, Counts, Tally};

pub use tally::{assert_at_rest as assert_info_at_rest, figure as info_figure};

/// How many commands are answered in the whole run.
const COMMANDS: u64 = 100_000;

/// How many clients do as they like.
const CLIENTS: usize = 32;

/// How often each of the plays is played.
const ROUNDS: usize = 24;

/// Many clients that do as they like, until so many commands have been answered.
fn free_for_all(server: &Server, commands: u64, seed: u64) -> Counts {
    let clients: Vec<Client> =
        (0..CLIENTS).map(|number| Client::new(server.port(), number, seed)).collect();
    let answered = AtomicU64::new(0);
    let mut counts = Counts::default();
    let clients: Vec<Client> = thread::scope(|scope| {
        let runs: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let answered = &answered;
                scope.spawn(move || {
                    while answered.load(Ordering::Relaxed) < commands {
                        let before = client.counts.commands;
                        client.go_on();
                        answered.fetch_add(client.counts.commands - before, Ordering::Relaxed);
                    }
                    client
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("a client")).collect()
    });
    for client in clients {
        counts += client.finish();
    }
    counts
}

#[test]
fn info_tells_what_the_clients_counted() {
    let server = Server::builder().start();
    let seed = fresh_seed();
    println!("seed {seed}");
    let scripted = rounds::play(&server, ROUNDS, seed);
    // Where each client knows who waited, all figures are the same.
    assert_eq!(told(&server), (scripted.tally, scripted.waits));

    let free = free_for_all(&server, COMMANDS - scripted.commands, seed);
    wait_until("all that was to lapse has", || int(call!(server.connection(), "DBSIZE")) == 0);
    let mut all = scripted;
    all += free;
    println!("{all:?}");
    assert!(all.commands >= COMMANDS, "{}", all.commands);
    let (tally, waits) = told(&server);
    assert_eq!(tally, all.tally);
    // Who asked with BLOCK and was granted, or told of a deadlock, cannot tell
    // whether it waited. But all who did wait were answered, or left.
    let waited = waits.waited - scripted.waits.waited;
    let granted = waits.granted - scripted.waits.granted;
    assert!(granted <= free.blocks_granted, "{granted} of {}", free.blocks_granted);
    let otherwise = waited - granted - free.tally.timeouts;
    assert!(otherwise <= free.tally.deadlocks + free.unanswered, "{otherwise}: {free:?}");
    assert_everything_happened(&free, granted);

    assert_at_rest(&server);
    let [p50, p99, max] = ["wait_ms_p50", "wait_ms_p99", "wait_ms_max"].map(|f| figure(&server, f));
    assert!(p50 <= p99 && p99 <= max && max > 0, "{p50}, {p99}, {max}");
}

/// Else nothing would be tested.
fn assert_everything_happened(free: &Counts, granted: u64) {
    let Tally { acquired, refused, timeouts, released, lapsed, deadlocks, disconnect_releases } =
        free.tally;
    for (count, what) in [
        (acquired, "acquired"),
        (refused, "refused"),
        (timeouts, "timeouts"),
        (released, "released"),
        (lapsed, "lapsed"),
        (deadlocks, "deadlocks"),
        (disconnect_releases, "disconnect releases"),
        (free.unanswered, "unanswered"),
        (granted, "granted after waiting"),
    ] {
        assert!(count >= 20, "{what}: {count} only: {free:?}");
    }
}

#[test]
fn a_grant_that_nobody_heard_of_counts_nowhere() {
    let server = Server::builder().start();
    let mut crowd = Crowd::on(&server);
    let rounds = 20;
    for round in 0..rounds {
        let session = if round % 2 == 0 { " SESSION" } else { "" };
        crowd.ok("WLOCK k h 60000");
        let waiter = crowd.waits(&format!("WLOCK k w 60000 BLOCK 0{session}"));
        let mut next = crowd.waits("WLOCK k n 60000 BLOCK 0");
        // It is granted, and gone or told something else before that is sent.
        let end = match round % 4 {
            0 | 1 => format!("CLIENT KILL ID {}", waiter.id),
            _ => format!("CLIENT UNBLOCK {} ERROR", waiter.id),
        };
        for line in ["MULTI", "RWLOCK.UNLOCK k h", &end] {
            crowd.plain(line);
        }
        assert_eq!(list(crowd.plain("EXEC")).len(), 2);
        next.granted();
        crowd.gives("UNLOCK k n", 1);
    }
    let figures =
        ["acquired", "waited", "granted_after_waiting", "released", "disconnect_releases"];
    assert_eq!(
        figures.map(|field| figure(&server, field)),
        [2 * rounds, 2 * rounds, rounds, 2 * rounds, 0]
    );
    assert_at_rest(&server);
}
