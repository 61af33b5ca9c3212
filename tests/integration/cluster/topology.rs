//! A cluster whose topology changes at random, under load: failovers, slots that move
//! forward and back, restarts, crashes, nodes that stall. The histories of the clients are
//! checked for two holders of one lock, the order of the tokens, waiters without an answer,
//! and keys that are left.
//!
//! `RWLOCK_CLUSTER_SECONDS` says for how long (20), `RWLOCK_CLUSTER_SEED` repeats the
//! choices of a run, though not their times.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::observe::run;
use support::{call, fresh_seed, int, number_from_environment, text, wait_until_within, Cluster};

mod client;
mod faults;
mod history;

use client::{Client, Tally};
use faults::Faults;
use history::Grant;

/// The locks of the clients, over four slots.
const LOCKS: [&str; 6] = ["{a}1", "{a}2", "{b}1", "{c}1", "{c}2", "{d}1"];

const CLIENTS: u64 = 10;

/// The longest lease that a client asks for, in ms.
const LONGEST_LEASE: u64 = 4_000;

/// The clients stop when it goes, also when the test fails.
struct StopsAtEnd(Arc<AtomicBool>);

impl Drop for StopsAtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn histories_are_right_whatever_happens_to_the_topology() {
    let seconds = number_from_environment("RWLOCK_CLUSTER_SECONDS").unwrap_or(20);
    let seed = number_from_environment("RWLOCK_CLUSTER_SEED").unwrap_or_else(fresh_seed);
    println!("RWLOCK_CLUSTER_SEED={seed} RWLOCK_CLUSTER_SECONDS={seconds}");
    let mut cluster = Cluster::start_with(3, 1, |node| {
        node.aof()
            // Shorter than the long stall of a node, so that its replica takes over.
            .config("cluster-node-timeout", 2_500)
            .config("repl-diskless-sync-delay", 0)
            .module_arguments("fence-ttl 2000")
    });
    let ports: Vec<u16> = cluster.nodes().iter().map(|node| node.port()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let stops = StopsAtEnd(Arc::clone(&stop));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (stop, ports) = (Arc::clone(&stop), ports.clone());
            thread::spawn(move || Client::new(number, seed, ports).work(&stop))
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut faults = Faults::new(seed);
    while Instant::now() < end {
        faults.next(&mut cluster);
    }
    drop(stops);
    let (mut grants, mut tally) = (Vec::new(), Tally::default());
    for client in clients {
        let (of_client, tally_of_client) = client.join().expect("a client");
        grants.extend(of_client);
        tally.add(&tally_of_client);
    }
    nothing_is_left(&cluster);
    report(&grants, &tally, &faults);
    let mut wrong = history::two_holders(&grants);
    wrong.extend(history::tokens_out_of_order(&grants));
    wrong.extend(tally.unanswered.iter().cloned());
    wrong.extend(tally.lost.iter().cloned());
    assert!(wrong.is_empty(), "seed {seed}: {} faults: {wrong:#?}", wrong.len());
    assert!(grants.iter().filter(|grant| grant.is_safe()).count() > 20, "the load was too light");
}

/// All leases are over: no key and no waiter is left on any node.
fn nothing_is_left(cluster: &Cluster) {
    cluster.wait_ok();
    let limit = Duration::from_millis(LONGEST_LEASE) + Duration::from_secs(8);
    for node in cluster.nodes() {
        let mut con = node.connection();
        // DBSIZE also counts expired keys that nobody has removed yet.
        let count = |con: &mut redis::Connection| int(run(con, "DBSIZE"));
        let what = format!("no key is left at {}", node.port());
        wait_until_within(&what, limit, || {
            let nothing = count(&mut con) == 0;
            if !nothing {
                // To print a key that is left now and then, and not at each try.
                thread::sleep(Duration::from_millis(300));
                println!("at {}: {:?}", node.port(), run(&mut con, "RANDOMKEY"));
            }
            nothing
        });
        let what = format!("nobody waits at {}", node.port());
        wait_until_within(&what, limit, || {
            let nobody = node.info("rwlock")["rwlock_waiters"] == "0";
            if !nobody {
                println!("{what}: {:?}", run(&mut con, "RWLOCK.QUEUES"));
                println!("{}", text(call!(con, "CLIENT", "LIST")));
                println!("{:?}", node.info("replication"));
                thread::sleep(Duration::from_secs(1));
            }
            nobody
        });
    }
}

fn report(grants: &[Grant], tally: &Tally, faults: &dyn fmt::Display) {
    let safe = grants.iter().filter(|grant| grant.is_safe()).count();
    println!("{faults}");
    println!(
        "{} grants, of which {safe} reached a replica; {} other answers, {} redirections, {} to \
         come again, {} connections lost",
        grants.len(),
        tally.refused,
        tally.moved,
        tally.again,
        tally.broken
    );
}
