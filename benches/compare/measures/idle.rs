//! What 10,000 waiters cost a server on which nothing happens.

use super::{fill, info, settle, Bench};
use crate::contenders::owner;
use crate::load::{Net, Protocol};
use crate::machine::cpu_time;
use crate::report::{Figure, Section};
use crate::stats::{alternate, Rounds};
use std::time::{Duration, Instant};
use support::wire::packed_line;
use support::{wait_until, Server};

const CLIENTS: usize = 10_000;

#[derive(Clone, Copy)]
enum Crowd {
    Idle,
    OneLock,
    LockEach,
}

pub fn measure(bench: &mut Bench) {
    let mut crowds = [
        ("idle connections", Crowd::Idle),
        ("waiters for one lock", Crowd::OneLock),
        ("waiters, each for a lock of its own", Crowd::LockEach),
    ];
    let rounds = bench.size(1, 3);
    let time = Duration::from_secs(bench.size(2, 4));
    bench.progress(format_args!("{rounds} rounds of {} s each", time.as_secs()));
    let all: Vec<Rounds> = alternate(rounds, &mut crowds, |(_, crowd), round| match round {
        // There is nothing to warm up.
        0 => f64::NAN,
        _ => percent(bench, *crowd, time),
    })
    .into_iter()
    .map(Rounds::from_iter)
    .collect();
    let mut rows = Vec::new();
    for ((name, _), rounds) in crowds.iter().zip(&all) {
        rows.push(vec![format!("{CLIENTS} {name}"), rounds.show(), rounds.less(&all[0]).show()]);
    }
    for (number, what) in [(1, "for one lock"), (2, "each for a lock of its own")] {
        let what =
            format!("CPU of 10,000 waiters ({what}) above 10,000 idle connections, % of a core");
        bench.figure(Figure::new(&what, all[number].less(&all[0])).under(0.5, 0.1));
    }
    bench.section(
        Section::new("Waiting costs nothing")
            .say(format!(
                "CPU time of the server's process over {} s without requests.",
                time.as_secs()
            ))
            .table(["", "% of a core", "above idle connections"], rows),
    );
}

fn percent(bench: &mut Bench, crowd: Crowd, time: Duration) -> f64 {
    let server = bench.start(Server::builder());
    let mut net = Net::new(false);
    for _ in 0..CLIENTS {
        let conn = net.connect(server.port(), Protocol::Resp);
        net.ask(conn, &packed_line("PING"));
    }
    let lock = |n: usize| match crowd {
        Crowd::LockEach => format!("orders:{n}"),
        _ => "orders".to_owned(),
    };
    let held = match crowd {
        Crowd::Idle => 0,
        Crowd::OneLock => 1,
        Crowd::LockEach => CLIENTS,
    };
    let take = |n| packed_line(&format!("RWLOCK.WLOCK {} holder 3600000", lock(n)));
    fill(&mut server.connection(), (0..held).map(take));
    if held > 0 {
        for n in 0..CLIENTS {
            let take = format!("RWLOCK.WLOCK {} {} 3600000 BLOCK 0", lock(n), owner(n));
            net.send(n, &packed_line(&take));
        }
        wait_until("all wait", || info(&server, "clients", "blocked_clients") == CLIENTS as f64);
    }
    settle(server.pid());
    let before = cpu_time(server.pid());
    let started = Instant::now();
    std::thread::sleep(time);
    let elapsed = started.elapsed();
    (cpu_time(server.pid()) - before) / 1e7 / elapsed.as_secs_f64()
}
