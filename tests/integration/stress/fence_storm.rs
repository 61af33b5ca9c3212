//! Many clients take tokens while their servers die, again and again. Each
//! token is larger than all that any client had read before it was asked for.
//!
//! `RWLOCK_GRANTS` says how many tokens are to be handed out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};

use crate::fencing::tokens::token;
use support::observe::run;
use support::{
    assert_ok, call, int, number_from_environment, text, wait_synced, wait_until_within, Server,
};

/// How many tokens when nobody says.
const GRANTS: usize = 100_000;

const RESTARTS: usize = 20;
const FAILOVERS: usize = 5;

const LOCKS: [&str; 3] = ["orders", "{stock}:7", "a b"];

/// They take the same locks, each as an owner of its own.
const CLIENTS: usize = 4;

/// How many times a client takes and gives back a lock in one go.
const AT_ONCE: usize = 100;

/// What a client read in one go, in the order in which it read it.
struct Read {
    lock: &'static str,
    /// When it began to ask.
    asked: Instant,
    /// When it had read the last one.
    read: Instant,
    tokens: Vec<i64>,
    /// A replica has them, or there is none that could.
    confirmed: bool,
}

/// Takes tokens until the server is gone.
fn work(mut con: Connection, client: usize, with_replica: bool, taken: &AtomicUsize) -> Vec<Read> {
    let mut all = Vec::new();
    for turn in client.. {
        let lock = LOCKS[turn % LOCKS.len()];
        let mut one = Read {
            lock,
            asked: Instant::now(),
            read: Instant::now(),
            tokens: Vec::new(),
            confirmed: false,
        };
        let done = take(&mut con, client, with_replica, &mut one);
        taken.fetch_add(one.tokens.len(), Ordering::Relaxed);
        all.push(one);
        if let Err(error) = done {
            assert!(error.is_io_error() && !error.is_timeout(), "{error}");
            break;
        }
    }
    all
}

fn take(
    con: &mut Connection,
    client: usize,
    with_replica: bool,
    into: &mut Read,
) -> RedisResult<()> {
    let owner = format!("client-{client}");
    let mut pipe = redis::pipe();
    for _ in 0..AT_ONCE {
        pipe.cmd("RWLOCK.WLOCK").arg(into.lock).arg(&owner).arg(60_000);
        pipe.arg("BLOCK").arg(0).arg("FENCE");
        pipe.cmd("RWLOCK.UNLOCK").arg(into.lock).arg(&owner);
    }
    if with_replica {
        pipe.cmd("WAIT").arg(1).arg(10_000);
    }
    con.send_packed_command(&pipe.get_packed_pipeline())?;
    for _ in 0..AT_ONCE {
        into.tokens.push(token(Ok(con.recv_response()?)));
        into.read = Instant::now();
        assert_eq!(con.recv_response()?, Value::Int(1), "the lock was its own");
    }
    into.confirmed = !with_replica || int(con.recv_response()?) >= 1;
    Ok(())
}

/// Clients take so many tokens and more, until the server is killed.
fn round(server: &mut Server, grants: usize, with_replica: bool) -> Vec<Read> {
    let mut con = server.connection();
    for lock in LOCKS {
        // Somebody had it when the last server died.
        int(call!(con, "RWLOCK.FORCEUNLOCK", lock));
    }
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (con, taken) = (server.connection(), &taken);
                scope.spawn(move || work(con, client, with_replica, taken))
            })
            .collect();
        // Thousands, each synced to a disk that others may use as well.
        wait_until_within("they have their tokens", Duration::from_secs(120), || {
            taken.load(Ordering::Relaxed) >= grants
        });
        server.kill9();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

/// The last token that a server knows of each lock is not lower than what its
/// clients have read.
#[track_caller]
fn assert_kept(server: &Server, reads: &[Read]) {
    let mut con = server.connection();
    for one in reads.iter().filter(|one| one.confirmed) {
        let tagged =
            if one.lock.contains('{') { one.lock.to_owned() } else { format!("{{{}}}", one.lock) };
        let last: i64 =
            text(call!(con, "GET", format!("{tagged}:rwlock_fence"))).parse().expect("a token");
        assert!(one.tokens.iter().all(|token| *token <= last), "{}: {last} is behind", one.lock);
    }
}

/// Tokens of a lock are all different, and each is larger than all that were
/// read before it was asked for.
#[track_caller]
fn assert_increasing(reads: &[Read]) {
    let mut of_lock: BTreeMap<&str, Vec<&Read>> = BTreeMap::new();
    for one in reads.iter().filter(|one| !one.tokens.is_empty()) {
        assert!(one.tokens.is_sorted_by(|a, b| a < b), "{}: {:?}", one.lock, one.tokens);
        of_lock.entry(one.lock).or_default().push(one);
    }
    assert_eq!(of_lock.len(), LOCKS.len());
    for (lock, mut by_asked) in of_lock {
        let mut tokens: Vec<i64> = by_asked.iter().flat_map(|one| &one.tokens).copied().collect();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{lock}: a token was handed out twice");
        let mut by_read = by_asked.clone();
        by_asked.sort_by_key(|one| one.asked);
        by_read.sort_by_key(|one| one.read);
        let (mut known, mut highest) = (by_read.into_iter().peekable(), 0);
        for one in by_asked {
            while let Some(before) = known.next_if(|other| other.read < one.asked) {
                highest = highest.max(before.tokens[before.tokens.len() - 1]);
            }
            assert!(one.tokens[0] > highest, "{lock}: {} after {highest}", one.tokens[0]);
        }
    }
}

#[test]
fn tokens_increase_over_kills_and_failovers_as_the_clients_see_them() {
    let given = number_from_environment("RWLOCK_GRANTS");
    let grants =
        given.map_or(GRANTS, |grants| usize::try_from(grants).expect("a number of grants"));
    let each = grants.div_ceil(RESTARTS + FAILOVERS);
    let mut reads = Vec::new();
    let mut server = Server::builder().aof().start();
    for _ in 0..RESTARTS {
        let some = round(&mut server, each, false);
        server.restart();
        assert_kept(&server, &some);
        reads.extend(some);
    }
    let restarted: usize = reads.iter().map(|one| one.tokens.len()).sum();
    for _ in 0..FAILOVERS {
        let replica = Server::builder().replica_of(&server).start();
        wait_synced(&server, &replica);
        let some = round(&mut server, each, true);
        assert!(some.iter().any(|one| one.confirmed), "no WAIT was answered");
        assert_ok(run(&mut replica.connection(), "REPLICAOF NO ONE"));
        assert_kept(&replica, &some);
        reads.extend(some);
        server = replica;
    }
    assert_increasing(&reads);
    let all: usize = reads.iter().map(|one| one.tokens.len()).sum();
    assert!(all >= grants);
    println!(
        "{all} tokens, {restarted} over {RESTARTS} kills, {} over {FAILOVERS} failovers",
        all - restarted
    );
}
