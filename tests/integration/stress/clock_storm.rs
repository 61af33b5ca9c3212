//! A wall clock that is set at random while all kinds of waits go on: forward and
//! back by an hour, by half a minute, by parts of a second, and drifting.
//!
//! `RWLOCK_CLOCK_STEPS` says how often it is set. What is asked of the server: no wait
//! is longer than it should be by more than [`LATE`], and none ends too early. The
//! machine may stall for longer than that, whatever the server does. So what the
//! kernel let the server and the client wait for a processor is allowed on top, and
//! what a client had to wait that does nothing but PING the same server.

mod history;
mod waits;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, thread};

use history::History;
use support::observe::run;
use support::{assert_ok, fresh_seed, number_from_environment, Clock, Random, Server};

/// By how much a wait may be longer than it should be.
pub const LATE: Duration = Duration::from_millis(100);

/// How long a lock is held whose end is not to come, in ms: whatever the steps.
pub const FOR_EVER: i64 = 1_000_000_000_000;

/// When a wait began.
pub struct Began {
    pub at: Instant,
    /// How long the server and this thread had waited for a processor by then.
    queued: Duration,
}

impl Began {
    pub fn now(storm: &Storm) -> Began {
        let queued = |task: &str| {
            let stat = fs::read_to_string(format!("/proc/{task}/schedstat")).expect("schedstat");
            let ns = stat.split(' ').nth(1).and_then(|ns| ns.parse().ok()).expect("a number");
            Duration::from_nanos(ns)
        };
        let queued = queued(&storm.server.pid().to_string()) + queued("thread-self");
        Began { at: Instant::now(), queued }
    }
}

/// The server, its clock, and how it went.
pub struct Storm {
    pub server: Server,
    pub history: History,
    stalls: Mutex<Vec<(Instant, Instant)>>,
    over: AtomicBool,
    waits: AtomicUsize,
    worst: Mutex<Duration>,
}

impl Storm {
    /// Whether the clock is still being set.
    pub fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Asserts that what began `from` there and was due at a time ended in time.
    #[track_caller]
    pub fn assert_prompt(&self, what: &str, began: &Began, due: Instant) {
        let (now, from) = (Instant::now(), began.at);
        self.waits.fetch_add(1, Ordering::Relaxed);
        let late = now.saturating_duration_since(due);
        if late > LATE {
            // The client that PINGs notices a stall when that is over.
            thread::sleep(Duration::from_millis(50));
        }
        let queued = Began::now(self).queued - began.queued;
        let late = late.saturating_sub(self.stalled(from, now).max(queued));
        let mut worst = self.worst.lock().expect("the worst");
        *worst = (*worst).max(late);
        assert!(late <= LATE, "{what}: late by {late:?}\n{}", self.history.tail(now));
    }

    /// For how long, in all, nobody was served between these times.
    fn stalled(&self, from: Instant, to: Instant) -> Duration {
        let stalls = self.stalls.lock().expect("the stalls");
        let in_all = stalls.iter().filter(|(begin, end)| *end >= from && *begin <= to);
        in_all.map(|(begin, end)| *end - *begin).sum()
    }

    /// PINGs, and remembers what took longer than it should.
    fn watch(&self) {
        let mut con = self.server.connection();
        let pause = Duration::from_millis(5);
        while self.goes_on() {
            let began = Instant::now();
            thread::sleep(pause);
            drop(run(&mut con, "PING"));
            let ended = Instant::now();
            if ended - began > 3 * pause {
                self.stalls.lock().expect("the stalls").push((began + pause, ended));
            }
        }
    }

    /// Sets the clock, so many times.
    fn set_clock(&self, clock: &Clock, steps: u64, random: &mut Random) {
        for _ in 0..steps {
            thread::sleep(Duration::from_millis(20 + random.below(150)));
            let sign = if random.below(2) == 0 { 1 } else { -1 };
            // Not too far from where it began.
            let sign = match clock.ahead() / 3_600_000_000 {
                ahead if ahead > 6 => -1,
                ahead if ahead < -6 => 1,
                _ => sign,
            };
            match random.below(6) {
                0 => clock.step(sign * 3_600_000),
                1 => clock.step(sign * 30_000),
                2 => clock.step(sign * random.below(30_000) as i64),
                3 | 4 => clock.step(sign * random.below(400) as i64),
                _ => clock.drift(sign * random.below(100_000) as i64),
            }
            self.history.note(clock);
        }
        self.over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_wait_depends_on_the_wall_clock() {
    let steps = number_from_environment("RWLOCK_CLOCK_STEPS").unwrap_or(60);
    let seed = fresh_seed();
    let clock = Clock::make();
    let storm = Storm {
        // The server notices at a tick that its clock was set forward: at each 40 ms.
        server: Server::builder().clock(&clock).config("hz", 25).start(),
        history: History::of(&clock),
        stalls: Mutex::default(),
        over: AtomicBool::new(false),
        waits: AtomicUsize::new(0),
        worst: Mutex::default(),
    };
    let mut con = storm.server.connection();
    assert_ok(run(&mut con, &format!("RWLOCK.WLOCK held a {FOR_EVER}")));
    thread::scope(|scope| {
        let storm = &storm;
        scope.spawn(|| storm.watch());
        scope.spawn(|| waits::times_out(storm, Random::new(seed ^ 1)));
        scope.spawn(|| waits::times_out(storm, Random::new(seed ^ 2)));
        scope.spawn(|| waits::hand_over(storm));
        scope.spawn(|| waits::deleted(storm));
        scope.spawn(|| waits::closes(storm));
        scope.spawn(|| waits::renewed(storm));
        for lock in 3..6 {
            scope.spawn(move || waits::lapses(storm, lock, Random::new(seed ^ lock)));
        }
        storm.set_clock(&clock, steps, &mut Random::new(seed));
    });
    let (waits, worst) = (storm.waits.load(Ordering::Relaxed), storm.worst.lock().expect("it"));
    println!("{steps} steps, {waits} waits, the latest by {worst:?}; seed {seed}");
}
