//! Sixty-four clients move money between a hundred accounts. Each transfer holds the locks of
//! both accounts by MLOCK ... BLOCK. Clients are killed while they wait and while they hold,
//! requests time out, leases lapse, and an intruder deletes locks.
//!
//! What each fault may do to a transfer:
//!
//! | fault | the transfer |
//! |---|---|
//! | CLIENT KILL of a waiting client, a time-out | has no locks and writes nothing |
//! | CLIENT KILL of a client that holds | was written as a whole or not at all, and the client does not learn which |
//! | a lease lapses, DEL of a lock | may meet another holder, so its write is refused: see [`Guard`] |
//!
//! No fault changes the sum of the balances, or loses one transfer of those that were written.
//! `RWLOCK_TRANSFERS` says how many transfers each test makes, `RWLOCK_SEED` repeats the choices.

mod faults;
mod mover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use redis::Connection;
use serial_test::serial;

use crate::monitoring::figures::{assert_info_at_rest, info_figure};
use faults::Faults;
use mover::{Books, Mover};
use support::observe::run;
use support::{
    assert_ok, call, fresh_seed, list, number_from_environment, text, wait_until, Random, Server,
};

const MOVERS: u64 = 64;
const ACCOUNTS: usize = 100;

/// What is in each account at first.
const START: i64 = 1_000;

/// Where the storage notes each transfer that was written: its owner, and what it moved.
const LEDGER: &str = "ledger";

/// How often anything happened.
type Counts = BTreeMap<&'static str, u64>;

/// What refuses the write of a client that has lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// A script renews both holds, and writes only if it has renewed both. Each request has an
    /// owner of its own, so what is held now was held without a gap.
    Renewed,
    /// The client watches both locks, sees with INSPECT that it holds them, and writes in a
    /// transaction. EXEC does nothing if a lock has changed or expired.
    Watched,
    /// Each read and each write carries the fencing tokens. The storage notes them when a client
    /// reads, and refuses a write whose tokens are not the last that it has seen.
    Fenced,
}

/// What the clients share.
struct Bank<'s> {
    server: &'s Server,
    guard: Guard,
    /// How many transfers are to be made, and how many clients know to be written.
    target: u64,
    written: AtomicU64,
    /// The connections that the intruder has asked the server to kill.
    killed: Mutex<BTreeSet<i64>>,
}

impl<'s> Bank<'s> {
    fn open(server: &'s Server, guard: Guard) -> Self {
        let mut con = server.connection();
        for account in 0..ACCOUNTS {
            assert_ok(call!(con, "SET", balance_name(account), START));
        }
        let target = number_from_environment("RWLOCK_TRANSFERS").unwrap_or(10_000);
        let (written, killed) = (AtomicU64::new(0), Mutex::default());
        Self { server, guard, target, written, killed }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn goes_on(&self) -> bool {
        self.written() < self.target
    }
}

fn lock_name(account: usize) -> String {
    format!("account:{account}")
}

fn balance_name(account: usize) -> String {
    format!("balance:{account}")
}

/// The key of the last token that the storage has seen.
fn seen_name(account: usize) -> String {
    format!("seen:{account}")
}

fn balances(con: &mut Connection) -> Vec<i64> {
    let names: Vec<String> = (0..ACCOUNTS).map(balance_name).collect();
    let balances = list(call!(con, "MGET", names));
    balances.into_iter().map(|one| text(one).parse().expect("a balance")).collect()
}

/// Holds the balances against the ledger, and the ledger against what the clients were told.
fn assert_books_agree(server: &Server, books: &Books) {
    let mut con = server.connection();
    let ledger: Vec<String> = list(call!(con, "HGETALL", LEDGER)).into_iter().map(text).collect();
    let mut expected = vec![START; ACCOUNTS];
    let mut written = BTreeSet::new();
    for entry in ledger.chunks(2) {
        let [owner, moved] = entry else { panic!("half an entry: {entry:?}") };
        let known = books.written.contains(owner) || books.unknown.contains(owner);
        assert!(known, "written, and nobody was told so: {owner}");
        let moved: Vec<i64> =
            moved.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [from, to, amount] = moved[..] else { panic!("{owner}: {moved:?}") };
        expected[usize::try_from(from).expect("an account")] -= amount;
        expected[usize::try_from(to).expect("an account")] += amount;
        written.insert(owner.clone());
    }
    let lost: Vec<_> = books.written.difference(&written).collect();
    assert!(lost.is_empty(), "the ledger does not have {lost:?}");
    assert_eq!(balances(&mut con), expected);
}

/// Nobody waits, and no lock remains once the leases of the killed clients have ended.
fn assert_nothing_left(server: &Server) {
    let mut con = server.connection();
    assert_eq!(list(run(&mut con, "RWLOCK.QUEUES")), []);
    wait_until("the server has met the closed connections", || {
        info_figure(server, "session_holds") == 0
    });
    assert_info_at_rest(server);
    assert_eq!(info_figure(server, "deadlocks"), 0);
    let stays = |key: &String| {
        let starts = ["balance:", "seen:", LEDGER];
        starts.iter().any(|start| key.starts_with(start)) || key.ends_with(":rwlock_fence")
    };
    wait_until("no lock remains", || {
        list(run(&mut con, "KEYS *")).into_iter().map(text).all(|key| stays(&key))
    });
}

fn assert_everything_happened(counts: &Counts) {
    println!("{counts:?}");
    for what in [
        "killed waiting",
        "killed holding",
        "deleted",
        "timed out",
        "slower than the lease",
        "not given back",
        "not written",
        "lost a lock",
        "outcome unknown",
    ] {
        assert!(counts.contains_key(what), "never: {what}: {counts:?}");
    }
}

/// Lets the clients move money, and the intruder disturb them.
fn storm(bank: &Bank<'_>) -> Books {
    let seed = number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut fresh = || Random::new(random.below(u64::MAX));
    thread::scope(|scope| {
        let mut movers = Vec::new();
        for _ in 0..MOVERS {
            let mover = Mover::new(bank, fresh());
            movers.push(scope.spawn(|| mover.work()));
        }
        let faults = Faults::new(bank, fresh()).go_on();
        let mut books = Books { counts: faults, ..Books::default() };
        for mover in movers {
            books += mover.join().expect("a mover");
        }
        books
    })
}

fn transfers_guarded_by(guard: Guard) {
    let server = Server::builder().start();
    let bank = Bank::open(&server, guard);
    let started = Instant::now();
    let books = storm(&bank);
    println!("{} transfers in {:?}", books.written.len(), started.elapsed());
    assert_nothing_left(&server);
    assert_books_agree(&server, &books);
    assert_everything_happened(&books.counts);
}

// Sixty-four threads each: two of these at a time would take the processors from the tests that
// run beside them.
#[test]
#[serial]
fn no_money_is_lost_when_a_script_renews_both_locks_before_it_writes() {
    transfers_guarded_by(Guard::Renewed);
}

#[test]
#[serial]
fn no_money_is_lost_when_a_transaction_watches_both_locks() {
    transfers_guarded_by(Guard::Watched);
}

#[test]
#[serial]
fn no_money_is_lost_when_the_storage_compares_the_tokens_of_both_locks() {
    transfers_guarded_by(Guard::Fenced);
}
