//! What a lock, a hold and a waiter take of memory, beyond the keys themselves.

use super::{fill, info, settle, Bench};
use crate::contenders::owner;
use crate::load::{Net, Protocol};
use crate::report::{Figure, Section};
use crate::stats::number;
use std::thread;
use std::time::{Duration, Instant};
use support::wire::packed_line;
use support::{wait_until, Builder, Server};

/// An hour: nothing lapses meanwhile.
const LEASE: u32 = 3_600_000;

/// As a unix time in ms: long after.
const END: u64 = 4_000_000_000_000;

const WAITERS: usize = 10_000;

pub fn measure(bench: &mut Bench) {
    let count: usize = bench.size(20_000, 100_000);
    let mut rows = Vec::new();
    for (label, module, plain) in [
        ("a write lock, held", write_lock as Make, plain_write_lock as Make),
        ("a read lock, held", read_lock, plain_read_lock),
        ("a further read hold of a lock", reader, plain_reader),
    ] {
        bench.progress(label);
        let with = grown(bench, Server::builder(), count, module);
        let without = grown(bench, Server::builder().without_module(), count, plain);
        rows.push(vec![label.into(), number(with), number(without), number(with - without)]);
        if rows.len() == 1 {
            let beyond = [with - without].into_iter().collect();
            let what = "memory of a held lock beyond its keys, bytes";
            bench.figure(Figure::new(what, beyond).under(200.0, 100.0));
        }
    }
    bench.progress(format_args!("{WAITERS} waiters"));
    let (idle, waiting) = waiters(bench);
    rows.push(vec!["a waiter".into(), number(waiting), number(idle), number(waiting - idle)]);
    bench.section(
        Section::new("Memory")
            .say(format!(
                "`used_memory` for each of {count} locks or holds (owners of 40 bytes), and for \
                 the same keys without the module. Waiters ({WAITERS} for one lock) are compared \
                 with idle connections. Most of their memory is two clients that the server \
                 creates for each, in Redis 7.0 with a reply buffer of 16 KB each."
            ))
            .table(["", "rwlock, bytes", "its keys or connection", "beyond them"], rows),
    );
}

/// The commands that make number so-and-so.
type Make = fn(usize) -> Vec<String>;

fn write_lock(n: usize) -> Vec<String> {
    vec![format!("RWLOCK.WLOCK orders:{n} {} {LEASE}", owner(n))]
}

fn plain_write_lock(n: usize) -> Vec<String> {
    vec![
        format!("HSET orders:{n} mode write {}:write 1", owner(n)),
        format!("PEXPIREAT orders:{n} {END}"),
    ]
}

fn read_lock(n: usize) -> Vec<String> {
    vec![format!("RWLOCK.RLOCK orders:{n} {} {LEASE}", owner(n))]
}

fn plain_read_lock(n: usize) -> Vec<String> {
    let owner = owner(n);
    vec![
        format!("HSET orders:{n} mode read {owner} 1"),
        format!("PEXPIREAT orders:{n} {END}"),
        format!("SET {{orders:{n}}}:{owner}:rwlock_timeout:1 orders:{n} PXAT {END}"),
    ]
}

fn reader(n: usize) -> Vec<String> {
    vec![format!("RWLOCK.RLOCK orders {} {LEASE}", owner(n))]
}

fn plain_reader(n: usize) -> Vec<String> {
    let owner = owner(n);
    vec![
        format!("HSET orders mode read {owner} 1"),
        format!("SET {{orders}}:{owner}:rwlock_timeout:1 orders PXAT {END}"),
    ]
}

/// By how much the server's memory grows for each.
fn grown(bench: &mut Bench, builder: Builder, count: usize, make: Make) -> f64 {
    let server = bench.start(builder);
    let mut con = server.connection();
    let used = || info(&server, "memory", "used_memory");
    // The connection has its buffers, and the tables have begun.
    fill(&mut con, (0..10).flat_map(make).map(|command| packed_line(&command)));
    settle(server.pid());
    let before = used();
    fill(&mut con, (10..count).flat_map(make).map(|command| packed_line(&command)));
    settle(server.pid());
    (used() - before) / (count - 10) as f64
}

/// An idle connection, and one that waits.
fn waiters(bench: &mut Bench) -> (f64, f64) {
    let server = bench.start(Server::builder());
    let used = || info(&server, "memory", "used_memory");
    let mut net = Net::new(bench.layout.spins());
    let before = used();
    for _ in 0..WAITERS {
        let conn = net.connect(server.port(), Protocol::Resp);
        net.ask(conn, &packed_line("PING"));
    }
    let idle = at_rest(used);
    fill(&mut server.connection(), [packed_line("RWLOCK.WLOCK orders holder 3600000")].into_iter());
    for conn in 0..WAITERS {
        net.send(
            conn,
            &packed_line(&format!("RWLOCK.WLOCK orders {} {LEASE} BLOCK 0", owner(conn))),
        );
    }
    wait_until("all wait", || info(&server, "clients", "blocked_clients") == WAITERS as f64);
    let waiters = WAITERS as f64;
    ((idle - before) / waiters, (at_rest(used) - before) / waiters)
}

/// The least, once there has been no less for a while: a server takes seconds to
/// give back the buffers of connections on which nothing happens.
fn at_rest(used: impl Fn() -> f64) -> f64 {
    const WHILE: Duration = Duration::from_secs(6);
    let (mut least, mut since) = (used(), Instant::now());
    while since.elapsed() < WHILE {
        thread::sleep(Duration::from_millis(100));
        let now = used();
        if now < least {
            (least, since) = (now, Instant::now());
        }
    }
    least
}
