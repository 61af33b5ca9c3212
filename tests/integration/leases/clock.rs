//! A wall clock that is set while the server runs: leases end by it, as all
//! expiry does, and nothing else waits for it.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;

use support::observe::{clock as time_of, run};
use support::{assert_ok, call, int, is_blocked, wait_until, Client, Clock, Server};

/// By how much something may be late. The machine has other things to do too.
const LATE: Duration = Duration::from_secs(1);

/// Sends several commands in one packet, and reads no reply.
fn send_packet(server: &Server, lines: &[&str]) -> redis::Connection {
    let mut con = server.connection();
    let mut packet = Vec::new();
    for line in lines {
        let mut words = line.split(' ');
        let mut command = cmd(words.next().unwrap_or_default());
        command.arg(words.collect::<Vec<_>>());
        packet.extend(command.get_packed_command());
    }
    con.send_packed_command(&packet).expect("send the packet");
    con
}

#[test]
fn a_server_goes_by_the_clock_of_the_test() {
    let clock = Clock::make();
    let server = Server::builder().clock(&clock).start();
    let mut con = server.connection();
    for step in [0, 3_600_000, -7_200_000, 30_000, -30_000, 3_600_000] {
        clock.step(step);
        // Valkey 9 keeps the time for some commands.
        wait_until("the server notices", || (clock.now() - time_of(&mut con)).abs() < 100);
    }
    // It gains a second in each.
    clock.drift(1_000_000);
    let ms = |since: Instant| i64::try_from(since.elapsed().as_millis()).expect("a short while");
    let began = Instant::now();
    let shown = time_of(&mut con);
    let shown_at = Instant::now();
    wait_until("the clock gains", || time_of(&mut con) - shown > 800);
    let least = 2 * ms(shown_at);
    let gone = time_of(&mut con) - shown;
    let most = 2 * ms(began);
    assert!((least - 200..=most + 200).contains(&gone), "{gone} ms: not {least} to {most}");
}

#[test]
fn a_clock_set_back_while_the_server_is_busy_stops_nothing() {
    for step in [-30_000, -3_600_000, 30_000] {
        let clock = Clock::make();
        let server = Server::builder().clock(&clock).start();
        let mut con = server.connection();
        assert_ok(run(&mut con, "RWLOCK.WLOCK deleted a 10000000"));
        assert_ok(run(&mut con, "RWLOCK.WLOCK held a 10000000"));
        let until = Instant::now() + Duration::from_millis(2_000);
        let mut times_out = Client::waits(&server, "WLOCK held b 1000 BLOCK 2000");
        let mut next = Client::waits(&server, "WLOCK deleted b 10000000 BLOCK 0");
        // DEL makes the timer fire as soon as the server is done.
        let packet = send_packet(&server, &["DEL deleted", "DEBUG SLEEP 0.3"]);
        // In the middle of the server's own sleep, in which it answers nobody: there
        // is no condition to wait for.
        thread::sleep(Duration::from_millis(150));
        clock.step(step);
        next.granted();
        assert!(Instant::now() < until + LATE, "{step}: granted late");
        assert!(int(times_out.reply()) > 0);
        assert!((until..until + LATE).contains(&Instant::now()), "{step}: {:?}", until.elapsed());
        drop(packet);
    }
}

#[test]
fn a_clock_set_forward_and_back_again_delays_nothing_that_began_in_between() {
    let clock = Clock::make();
    let server = Server::builder().clock(&clock).start();
    let mut con = server.connection();
    assert_ok(run(&mut con, "RWLOCK.WLOCK held a 1000000000"));
    let mut waiter = server.connection();
    let id = int(call!(waiter, "CLIENT", "ID"));
    let mut wait = cmd("RWLOCK.WLOCK");
    wait.arg(&["held", "b", "1000", "BLOCK", "600"]);
    for _ in 0..8 {
        // The server looks at its clock ten times a second, and so most often
        // not between these steps.
        clock.step(3_600_000);
        let until = Instant::now() + Duration::from_millis(600);
        waiter.send_packed_command(&wait.get_packed_command()).expect("send");
        wait_until("it waits", || is_blocked(&mut con, id));
        clock.step(-3_600_000);
        assert!(int(waiter.recv_response()) > 0);
        assert!((until..until + LATE).contains(&Instant::now()), "late by {:?}", until.elapsed());
    }
}
