//! Two hundred clients that take, give back, vanish, and disturb each other at
//! random: nothing is granted twice, nobody is forgotten, and nothing remains.
//!
//! RWLOCK_EVENTS says how many disconnects, time-outs, CLIENT UNBLOCKs and the
//! like the longest of these tests has, RWLOCK_SEED repeats one (as far as the
//! machine's timing lets it be repeated), RWLOCK_HISTORY names a file for what was
//! sent and heard before a failure.

mod act;
mod books;
mod client;
mod hear;
mod storm;

use std::collections::BTreeMap;
use std::time::Instant;

use redis::Connection;

use books::{Kind, Lock};
use storm::{lock_name, owner_name, Storm, DATABASES, LOCKS};

use crate::monitoring::figures::assert_info_at_rest;
use support::observe::{clock, info_number, run};
use support::{
    assert_ok, fresh_seed, int, list, map, number_from_environment, text, unload, wait_synced,
    wait_until, Server, DEADLINE,
};

/// What a run may leave behind in memory: hash tables that have grown.
const MEMORY_LIMIT: i64 = 256 * 1024;

fn events() -> u64 {
    number_from_environment("RWLOCK_EVENTS").unwrap_or(20_000)
}

fn seed() -> u64 {
    number_from_environment("RWLOCK_SEED").unwrap_or_else(fresh_seed)
}

/// Holds what the server tells against what the clients know.
fn assert_agreement(server: &Server, storm: &mut Storm) {
    let mut con = server.connection();
    let started = Instant::now();
    loop {
        storm.pass();
        match disagreement(server, &mut con, storm) {
            None => return,
            Some(_) if started.elapsed() < DEADLINE => {}
            Some(what) => panic!("{what}\nwaiting: {:?}", storm.waiting()),
        }
    }
}

/// Every client is still in the database that it has chosen.
fn assert_databases(con: &mut Connection, storm: &Storm) {
    for line in text(run(con, "CLIENT LIST")).lines() {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        let id = field("id=").and_then(|id| id.parse().ok());
        if let Some(client) = storm.clients.iter().find(|client| client.id == id) {
            assert_eq!(field("db="), Some(client.db.to_string().as_str()), "{line}");
        }
    }
}

/// What the server tells and the clients do not know of. Some holds end and
/// some waiters get in meanwhile.
fn disagreement(server: &Server, con: &mut Connection, storm: &Storm) -> Option<String> {
    let waiting = storm.waiting();
    let blocked = info_number(server, "clients", "blocked_clients");
    if blocked != waiting.len() as i64 {
        return Some(format!("{blocked} clients are blocked"));
    }
    assert_databases(con, storm);
    let mut all_queues = 0;
    for db in 0..DATABASES {
        assert_ok(run(con, &format!("SELECT {db}")));
        let mut queues = BTreeMap::new();
        for number in 0..LOCKS {
            let lock: Lock = (db, number);
            let name = lock_name(lock);
            let then = Instant::now();
            let seen = map(run(con, &format!("RWLOCK.INSPECT {name} COUNT 1000")));
            let mut found: Vec<(i64, String)> = Vec::new();
            for waiter in list(&seen["waiters"]).into_iter().map(map) {
                found.push((int(&waiter["client"]), text(&waiter["owner"])));
            }
            let of_lock = waiting.iter().filter(|(_, asked, _)| asked.lock == lock);
            let mut expected: Vec<(i64, String)> =
                of_lock.map(|(id, asked, _)| (*id, owner_name(asked.owner))).collect();
            found.sort();
            expected.sort();
            if found != expected {
                return Some(format!("{name} of {db}: {found:?} wait, not {expected:?}"));
            }
            if !found.is_empty() {
                queues.insert(name.clone(), found.len() as i64);
                if seen["mode"] == text_value("free") && seen["reserved_by"] == redis::Value::Nil {
                    return Some(format!("{name} of {db} is free and waited for: {found:?}"));
                }
            }
            let mut holders = BTreeMap::new();
            for holder in list(&seen["holders"]).into_iter().map(map) {
                let kind = (text(&holder["owner"]), text(&holder["kind"]));
                holders.insert(kind, int(&holder["holds"]));
            }
            for ((owner, kind), holds) in storm.books.on(lock, then, Instant::now()) {
                let kind = if kind == Kind::Read { "read" } else { "write" };
                let there = holders.get(&(owner_name(owner), kind.to_owned()));
                assert!(
                    there.is_some_and(|there| *there >= holds),
                    "{name} of {db}: {owner} has {holds} holds to {kind} and not {there:?}"
                );
            }
        }
        let mut told = BTreeMap::new();
        for queue in list(run(con, "RWLOCK.QUEUES COUNT 1000")).into_iter().map(map) {
            told.insert(text(&queue["key"]), int(&queue["waiters"]));
        }
        if told != queues {
            return Some(format!("QUEUES of {db}: {told:?}, INSPECT: {queues:?}"));
        }
        all_queues += queues.len();
    }
    let info = server.info("rwlock");
    let told = ["rwlock_waiters", "rwlock_queues"].map(|field| &info[field]);
    if told != [&waiting.len().to_string(), &all_queues.to_string()] {
        return Some(format!("INFO: {told:?}, {} wait in {all_queues} queues", waiting.len()));
    }
    None
}

fn text_value(text: &str) -> redis::Value {
    redis::Value::BulkString(text.as_bytes().to_vec())
}

/// Nobody holds anything, nobody waits.
fn assert_nothing_left(server: &Server) {
    let mut con = server.connection();
    for db in 0..DATABASES {
        assert_ok(run(&mut con, &format!("SELECT {db}")));
        assert_eq!(list(run(&mut con, "RWLOCK.QUEUES")), []);
        // A DEL leaves timeout keys behind, which mean nothing and end by
        // themselves; reservations end soon.
        wait_until("there is no lock", || {
            list(run(&mut con, "KEYS *")).iter().all(|key| text(key).contains(":rwlock_timeout:"))
        });
    }
    wait_until("the clients are gone", || info_number(server, "clients", "blocked_clients") == 0);
    // The module has forgotten them too.
    assert_info_at_rest(server);
}

fn assert_everything_happened(storm: &Storm) {
    println!(
        "{:?}, {} certain holds, {} beside others",
        storm.counts, storm.books.certain, storm.books.shared
    );
    for what in [
        "disconnect",
        "disconnect at once",
        "cut off",
        "timeout",
        "CLIENT KILL",
        "CLIENT UNBLOCK",
        "unblocked",
        "UNBLOCKED",
        "DEL",
        "FORCEUNLOCK",
        "FLUSHALL",
        "DEADLOCK",
        "NOTHELD",
        "read holds",
        "write holds",
        "upgrades",
        "given back",
        "renewed",
        "downgraded",
    ] {
        assert!(storm.counts.contains_key(what), "never: {what}: {:?}", storm.counts);
    }
    // Else nothing would be tested.
    assert!(storm.books.certain > storm.events / 10, "{} holds", storm.books.certain);
    assert!(storm.books.shared > 0);
}

fn used_memory(server: &Server) -> i64 {
    info_number(server, "memory", "used_memory")
}

/// A storm, with a look at the books now and then, and calm after it.
fn weather(server: &Server, seed: u64, events: u64) {
    println!("seed {seed}");
    let started = Instant::now();
    let mut storm = Storm::new(server, seed);
    let mut compared = 0;
    for _ in 0..3 {
        storm.rage(events / 3);
        storm.calm();
        assert_eq!(storm.books.under_way(), storm.releases(), "the books are wrong");
        assert_agreement(server, &mut storm);
        // None, if the last event of the storm was a FLUSHALL, or nearly.
        compared += storm.waiting().len();
    }
    assert!(compared > 0, "nobody waited: nothing was compared");
    storm.wind_up(&mut server.connection());
    println!("{events} events in {:?}", started.elapsed());
    assert_everything_happened(&storm);
    assert_nothing_left(server);
}

#[test]
fn whatever_clients_do_to_each_other_nothing_is_granted_twice_and_nothing_remains() {
    let server = Server::builder().start();
    // Tables grow once.
    weather(&server, 1, events() / 10);
    let before = used_memory(&server);
    weather(&server, seed(), events());
    wait_until("the memory is given back", || used_memory(&server) < before + MEMORY_LIMIT);
    unload(&mut server.connection());
}

/// How much longer a key must live to be compared, in ms: longer than that takes.
const MARGIN: i64 = 10_000;

/// All keys that live longer than until then: when they end, and their content.
fn lasting(server: &Server, then: i64) -> BTreeMap<(u8, String), (i64, Vec<String>)> {
    let mut con = server.connection();
    let mut keys = BTreeMap::new();
    for db in 0..DATABASES {
        assert_ok(run(&mut con, &format!("SELECT {db}")));
        for key in list(run(&mut con, "KEYS *")).into_iter().map(text) {
            let ends = int(run(&mut con, &format!("PEXPIRETIME {key}")));
            if ends <= then {
                continue;
            }
            let content = match text(run(&mut con, &format!("TYPE {key}"))).as_str() {
                "hash" => list(run(&mut con, &format!("HGETALL {key}"))),
                _ => vec![run(&mut con, &format!("GET {key}")).expect("get a string")],
            };
            let mut content: Vec<String> = content.into_iter().map(text).collect();
            content.sort();
            keys.insert((db, key), (ends, content));
        }
    }
    keys
}

/// Compares the keys that do not end meanwhile, while nothing is written:
/// session holds are renewed all the time. How many there are.
fn assert_same_content(primary: &Server, replica: &Server) -> usize {
    let mut con = primary.connection();
    assert_ok(run(&mut con, "CLIENT PAUSE 60000 WRITE"));
    wait_synced(primary, replica);
    let then = clock(&mut con) + MARGIN;
    let (here, there) = (lasting(primary, then), lasting(replica, then));
    assert_ok(run(&mut con, "CLIENT UNPAUSE"));
    assert_eq!(here, there);
    here.len()
}

#[test]
fn a_replica_and_a_file_have_what_is_left_after_a_storm() {
    let mut primary = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().without_module().replica_of(&primary).start();
    wait_synced(&primary, &replica);
    let seed = seed();
    println!("seed {seed}");
    let mut storm = Storm::new(&primary, seed);
    let mut compared = 0;
    for _ in 0..3 {
        storm.rage(events() / 20);
        storm.calm();
        assert_eq!(storm.books.under_way(), storm.releases(), "the books are wrong");
        assert_agreement(&primary, &mut storm);
        compared += assert_same_content(&primary, &replica);
    }
    assert!(compared > 0, "nothing was compared");
    storm.wind_up(&mut primary.connection());
    assert_nothing_left(&primary);
    assert_same_content(&primary, &replica);
    primary.restart();
    assert_nothing_left(&primary);
}
