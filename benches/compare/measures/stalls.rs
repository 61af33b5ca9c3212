//! How long a server with many locks is busy at once with what is not a client's
//! command, and what the locks leave behind.

use super::{fill, info, settle, Bench};
use crate::report::{Figure, Section};
use crate::stats::Rounds;
use redis::{Connection, ConnectionLike};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::wire::packed_line;
use support::Server;

/// An hour: nothing lapses meanwhile.
const HOUR: i64 = 3_600_000;

/// How long a pause of writes lasts, in ms.
const PAUSE: i64 = 3_000;

/// What happens to all locks.
#[derive(Clone, Copy)]
enum Blow {
    Flush,
    Swap,
    Unlock,
    Lapse,
    Pause,
}

/// What came of it.
struct Stall {
    /// The longest pass, in ms.
    pass: f64,
    /// PING's times meanwhile, in ms, sorted.
    pings: Vec<f64>,
    /// Memory that is used more than before the first lock, in MB.
    kept: f64,
}

pub fn measure(bench: &mut Bench) {
    let locks: usize = bench.size(100_000, 1_000_000);
    let rounds = bench.size(1, 3);
    let mut rows = Vec::new();
    for (what, blow) in [
        ("FLUSHALL ASYNC", Blow::Flush),
        ("SWAPDB", Blow::Swap),
        ("UNLOCK of each", Blow::Unlock),
        ("all lapse within a second", Blow::Lapse),
        ("all lapse while writes are paused", Blow::Pause),
    ] {
        bench.progress(format_args!("{what}, {rounds} rounds"));
        let stalls: Vec<Stall> = (0..rounds).map(|_| stall(bench, locks, blow)).collect();
        let of = |figure: fn(&Stall) -> f64| stalls.iter().map(figure).collect::<Rounds>();
        let (pass, kept) = (of(|stall| stall.pass), of(|stall| stall.kept));
        rows.push(vec![
            what.into(),
            pass.show(),
            of(|stall| stall.ping(50)).show(),
            of(|stall| stall.ping(99)).show(),
            of(|stall| stall.ping(100)).show(),
            if matches!(blow, Blow::Swap) { "".into() } else { kept.show() },
        ]);
        let figure = format!("longest pass, {locks} locks, {what}, ms");
        bench.figure(Figure::new(&figure, pass).under(5.0, 2.0));
        if matches!(blow, Blow::Unlock | Blow::Lapse) {
            let figure = format!("memory that {locks} locks leave behind, {what}, MB");
            bench.figure(Figure::new(&figure, kept).under(1.0, 0.5));
        }
    }
    bench.section(
        Section::new("No stalls")
            .say(format!(
                "A server with {locks} write locks, while another client sends PINGs. A pass is \
                 the module's work outside commands in one turn of the event loop \
                 (`rwlock_pass_us_max`). PING times include the server's own work (freeing and \
                 expiring keys, large batches); both include pauses by the machine."
            ))
            .table(["", "longest pass, ms", "PING p50", "p99", "max", "memory kept, MB"], rows),
    );
}

impl Stall {
    /// The time that so many of 100 PINGs did not exceed.
    fn ping(&self, percent: usize) -> f64 {
        self.pings[(self.pings.len() - 1) * percent / 100]
    }
}

fn stall(bench: &mut Bench, locks: usize, blow: Blow) -> Stall {
    let server = bench.start(Server::builder());
    let mut con = server.connection();
    let used = || info(&server, "memory", "used_memory") / 1e6;
    // The connection has its buffers, and the tables have begun.
    take(&mut con, 10_000, |_| HOUR);
    give_back(&mut con, 10_000);
    settle(server.pid());
    let before = used();
    let end = unix_ms() + locks as i64 / 40 + 5_000;
    take(&mut con, locks, |n| match blow {
        Blow::Lapse => end - unix_ms() + n as i64 % 1_000,
        Blow::Pause => end - unix_ms(),
        _ => HOUR,
    });
    assert!(unix_ms() < end, "the locks were not taken in time");
    let lapsed = || info(&server, "rwlock", "rwlock_lapsed") as usize == locks;
    let pings = pinging(&server, || match blow {
        Blow::Flush => fill(&mut con, [packed_line("FLUSHALL ASYNC")].into_iter()),
        Blow::Swap => fill(&mut con, [packed_line("SWAPDB 0 1")].into_iter()),
        Blow::Unlock => give_back(&mut con, locks),
        Blow::Lapse => wait_for(lapsed),
        Blow::Pause => {
            let ms = end - unix_ms() + PAUSE;
            fill(&mut con, [packed_line(&format!("CLIENT PAUSE {ms} WRITE"))].into_iter());
            wait_for(lapsed);
        }
    });
    if !matches!(blow, Blow::Swap) {
        wait_for(|| used() - before < 5.0);
    }
    settle(server.pid());
    let pass = info(&server, "rwlock", "rwlock_pass_us_max") / 1_000.0;
    Stall { pass, pings, kept: used() - before }
}

fn take(con: &mut Connection, locks: usize, lease: impl Fn(usize) -> i64) {
    fill(con, (0..locks).map(|n| packed_line(&format!("RWLOCK.WLOCK orders:{n} me {}", lease(n)))));
}

fn give_back(con: &mut Connection, locks: usize) {
    fill(con, (0..locks).map(|n| packed_line(&format!("RWLOCK.UNLOCK orders:{n} me"))));
}

/// What PING takes while this is done, and a little longer; in ms, sorted.
fn pinging(server: &Server, work: impl FnOnce()) -> Vec<f64> {
    const LONGER: Duration = Duration::from_secs(1);
    let stop = AtomicBool::new(false);
    let mut con = server.connection();
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                con.req_command(&redis::cmd("PING")).expect("an answer");
                times.push(asked.elapsed().as_secs_f64() * 1_000.0);
                // The others share the machine.
                std::thread::sleep(Duration::from_micros(200));
            }
            times.sort_unstable_by(f64::total_cmp);
            times
        });
        work();
        std::thread::sleep(LONGER);
        stop.store(true, Ordering::Relaxed);
        pings.join().expect("pings")
    })
}

/// Waits for what takes longer than a test may.
fn wait_for(mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < limit, "not done in 120 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
